"""Print help that fits a screen: one line per option, with its default as the value, and groups in the margin."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand

REST = "Other"


def group(name: str) -> Callable[..., Any]:
    """Return a variant of `typer.Option` for options of that group."""
    return partial(typer.Option, rich_help_panel=name)


class Command(TyperCommand):
    """A command whose help has one line per option and few more."""

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

    def command(self, *args: Any, **options: Any) -> Callable[..., Any]:
        return super().command(*args, **{"cls": Command, **options})


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
