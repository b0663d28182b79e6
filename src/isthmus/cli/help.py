"""Commands whose options are derived from their declarations, with help that fits a screen.

The help has one line per option, with its default as the value, and groups in the margin.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand
from typer.main import get_command

if TYPE_CHECKING:
    from isthmus.options import OptionField

REST = "Other"


def group(name: str) -> Callable[..., Any]:
    """Return a variant of `typer.Option` for options of that group."""
    return partial(typer.Option, rich_help_panel=name)


class Command(TyperCommand):
    """A command with its own options and those that are declared for it; its help has one line for each.

    The declarations stand beside code that needs torch: they are read when the command is used, not for ``--help`` of
    all commands.
    """

    taker = ""
    function: Callable[..., Any]

    @property
    def params(self) -> list[Any]:
        if self.taker:
            made = _with_declared(self.function, self.taker)
            self.taker, self.callback = "", made.callback
            self._params[:] = made.params
        return self._params

    @params.setter
    def params(self, own: list[Any]) -> None:
        self._params = own

    def format_help(self, ctx: Any, formatter: Any) -> None:
        console = Console(highlight=False)
        parameters = self.get_params(ctx)
        arguments = (_written(one) if one.required else f"[{_written(one)}]" for one in parameters if _argument(one))
        console.print("Usage:", ctx.command_path, "[OPTIONS]", *arguments, soft_wrap=True, markup=False)
        console.print()
        for paragraph in (self.help or "").split("\n\n"):
            console.print(" ".join(paragraph.split()), markup=False)
        console.print()
        table = Table.grid(padding=(0, 2, 0, 0))
        for name, members in _groups(parameters).items():
            for place, parameter in enumerate(members):
                told = (Text(name if place == 0 else "", "dim"), Text(_written(parameter), "bold"), _meaning(parameter))
                table.add_row(*told)
        console.print(table)


class Commands(typer.Typer):
    """An app whose commands print such help unless they ask for another."""

    def command(self, *args: Any, takes: str = "", **options: Any) -> Callable[..., Any]:
        """Register a function as a command; it gets the options that are declared for ``takes`` as ``**options``."""

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            kind = type("Command", (Command,), {"taker": takes, "function": staticmethod(function)})
            register(*args, **{"cls": kind, **options})(_with_parameters(function, []))
            return function

        register = super().command
        return decorate


def _with_declared(function: Callable[..., Any], taker: str) -> Any:
    """Return the command that typer makes of a function and the options that are declared for it."""
    from isthmus.api.options import options

    alone = typer.Typer(add_completion=False)
    alone.command()(_with_parameters(function, [_parameter(one) for one in options(taker).values()]))
    return get_command(alone)


def _with_parameters(function: Callable[..., Any], more: list[inspect.Parameter]) -> Callable[..., Any]:
    """Return the function with these parameters in place of its ``**options``."""
    own = inspect.signature(function, eval_str=True)
    named = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]

    @wraps(function)
    def command(*args: Any, **options: Any) -> Any:
        return function(*args, **options)

    command.__signature__ = own.replace(parameters=[*named, *more])  # type: ignore[attr-defined]
    return command


def _parameter(one: OptionField) -> inspect.Parameter:
    """Return an option as the parameter that typer makes one of."""
    several = one.type in (dict, tuple)  # may be given several times
    kind: Any = list[str] if several else one.type if one.type in (bool, int, float) else str
    default = None if several else one.default
    shown = typer.Option(one.flag, help=one.help, rich_help_panel=one.about.group)
    kind = Annotated[kind | None if default is None else kind, shown]
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _groups(parameters: list[Any]) -> dict[str, list[Any]]:
    """Return the parameters by group: arguments, options without a group, the other groups, the rest."""
    found: dict[str, list[Any]] = {"": [], "Options": []}
    for parameter in parameters:
        own = REST if parameter.name == "help" else parameter.rich_help_panel or "Options"
        found.setdefault("" if _argument(parameter) else own, []).append(parameter)
    return {**{name: members for name, members in found.items() if name != REST}, REST: found[REST]}


def _argument(parameter: Any) -> bool:
    return parameter.param_type_name == "argument"


def _written(parameter: Any) -> str:
    """Return a parameter as a user types it: ``--hidden 64``, ``--out …``, ``--quiet``, ``SOURCE``."""
    if _argument(parameter):
        return parameter.metavar or parameter.name.upper()
    name, value = parameter.opts[0], parameter.default
    if parameter.is_flag:
        return name
    if value is None or _long(value):
        return f"{name} {parameter.metavar or '…'}"
    return f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"


def _meaning(parameter: Any) -> str:
    option = not _argument(parameter)
    default = f" Default: {parameter.default}." if option and _long(parameter.default) else ""
    return f"{parameter.help or ''}{default}{' Required.' if option and parameter.required else ''}"


def _long(default: Any) -> bool:
    return isinstance(default, str) and len(default) > 12
