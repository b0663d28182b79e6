"""Declare options once, each as a field of a frozen dataclass beside the code that it configures.

The commands, the keywords of Python, the wording of errors and the tables of the docs are derived from these fields:
`api/options.py`, `cli/help.py`, `wording.py`, `tools/derive.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from isthmus.errors import InputError
from isthmus.outside import FORM, is_outside

TAKERS = ("train", "compare", "plan", "verify", "predict", "partition", "Worker")
GROUPS = ("Recipe", "Mini-batches", "Workers", "Model", "Learning", "Cutting", "Run", "Other")
F = TypeVar("F", bound=Callable[..., Any])
Names = Iterable[Any] | Callable[[], Iterable[Any]]


@dataclass(frozen=True)
class About:
    """Describe an option: its meaning, who takes it, and the values that it may have."""

    help: str
    """One line; ``{choices}`` stands for the choices in words."""
    group: str
    takers: tuple[str, ...]
    """The commands that take it; ``Worker`` is `isthmus.Worker`, for a user's own loop."""
    name: str = ""
    """The keyword, if it is not the name of the field."""
    choices: Names = ()
    outside: bool = False
    """Whether ``package.module:NAME`` is a choice, too."""
    least: float | None = None
    below: float | None = None
    accepts: str = ""
    """The type that Python takes, if it is wider than that of the field."""


def option(default: Any, help: str, group: str, takers: str, **more: Any) -> Any:
    """Return a field of a dataclass that is an option; ``takers`` are words, ``more`` as in `About`.

    A default that is a type makes the value: ``dict`` is an empty dict.
    """
    about = About(help, group, tuple(takers.split()), **more)
    assert about.group in GROUPS, about.group
    assert set(about.takers) <= set(TAKERS), takers
    if isinstance(default, type):
        return field(default_factory=default, metadata={"option": about})
    return field(default=default, metadata={"option": about})


@dataclass(frozen=True)
class OptionField:
    """An option as it was declared, with what its dataclass knows about it."""

    field: str
    type: Any
    """The type of the field, without None."""
    written: str
    """The type as Python code."""
    default: Any
    about: About

    @property
    def name(self) -> str:
        """The keyword in Python: ``eval_every``."""
        return self.about.name or self.field

    @property
    def flag(self) -> str:
        """The option on the command line: ``--eval-every``."""
        return "--" + self.name.replace("_", "-")

    @property
    def accepts(self) -> str:
        """The type that Python takes, as code."""
        return self.about.accepts or self.written

    @property
    def switch(self) -> bool:
        return self.type is bool

    @property
    def choices(self) -> tuple[Any, ...]:
        named = self.about.choices
        return tuple(named() if callable(named) else named)

    @property
    def help(self) -> str:
        return self.about.help.replace("{choices}", in_words(self.choices))

    def check(self, value: Any) -> None:
        """Refuse a value that the declaration excludes."""
        if value is None and self.default is None:
            return
        word, least, below = self.flag[2:], self.about.least, self.about.below
        known = self.choices
        if known and value not in known and not (self.about.outside and is_outside(value)):
            own = f", or your own as {FORM}" if self.about.outside else ""
            raise InputError(f"unknown {word} {value!r}: use one of {', '.join(map(str, known))}{own}")
        low, high = least is not None and not value >= least, below is not None and not value < below
        if low or high:
            ends = f" and below {below:g}" if below is not None else ""
            raise InputError(f"{word} must be at least {least:g}{ends}, not {value}")


@cache
def options_of(kind: Any) -> tuple[OptionField, ...]:
    """Return the options that a dataclass declares."""
    types, found = get_type_hints(kind), []
    for one in fields(kind):
        if about := one.metadata.get("option"):
            default = one.default if one.default is not MISSING else None
            found.append(OptionField(one.name, _plain(types[one.name]), str(one.type), default, about))
    return tuple(found)


def check_options(options: Any) -> None:
    """Refuse values of a dataclass that its declarations exclude."""
    kind: Any = type(options)
    for one in options_of(kind):
        one.check(getattr(options, one.field))


def shows(options: Iterable[OptionField]) -> Callable[[F], F]:
    """Spell out options in the signature of a function that takes them as ``**options``."""

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        first = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
        more = [
            inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.accepts)
            for one in options
            if one.name not in own.parameters
        ]
        function.__signature__ = own.replace(parameters=[*first, *more])  # type: ignore[attr-defined]
        return function

    return decorate


def by_comma(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return names that are given as one text with commas, or as several such texts."""
    texts = [names] if isinstance(names, str) else names
    return tuple(name.strip() for text in texts for name in text.split(","))


def in_words(names: Sequence[Any]) -> str:
    """Return names as a list in a sentence: "adam, adamw or sgd"."""
    *early, last = map(str, names) if names else [""]
    return f"{', '.join(early)} or {last}" if early else last


def _plain(kind: Any) -> Any:
    """Return a type without None."""
    if get_origin(kind) in (Union, UnionType):
        kind = next(one for one in get_args(kind) if one is not NoneType)
    return get_origin(kind) or kind
