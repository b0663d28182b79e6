"""Reword error messages for Python: rooms name options as on the command line, Python users know keywords.

The functions of ``import isthmus`` pass their errors through `in_python`; the commands do not.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from isthmus.errors import InputError, WorkerError

T = TypeVar("T", bound=type)

_VALUE = r"(?: (\d+|[A-Z]+|float32|float64|bf16|ldg|ray|random|wandb|mlflow|none)\b)?"
_UNDECLARED = ("out", "parts")  # arguments of functions, options of commands
_COMMAND = r"`isthmus partition SOURCE --parts N --out DIR`"


def in_python(text: str) -> str:
    """Replace the options in a message by keywords.

    ``--undirected`` → ``undirected=True``, ``--method ldg`` → ``method="ldg"``, ``another --out`` → another `out`. Text
    in backquotes is a command and stays as it is.
    """
    text = text.replace(_COMMAND, "isthmus.partition(source, N, out=DIR)")
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(piece if piece.startswith("`") else _keywords(piece) for piece in pieces)


@cache
def known() -> dict[str, bool]:
    """Return the names of all options with hyphens, and whether they are switches.

    They are asked for at the first error: the declarations stand beside code that needs torch.
    """
    from isthmus.api.options import declared

    return {**dict.fromkeys(_UNDECLARED, False), **{one.flag[2:]: one.switch for one in declared()}}


def _keywords(text: str) -> str:
    text = re.sub(r"--([a-z-]+)\b", lambda found: _switch(found[0], found[1]), text)
    text = re.sub(rf"--([a-z-]+)\b{_VALUE}", lambda found: _option(*found.group(0, 1, 2)), text)
    hyphened = "|".join(name for name in known() if "-" in name)
    return re.sub(rf"(?<![\w-])({hyphened})(?![\w-])", lambda found: found[0].replace("-", "_"), text)


def _switch(whole: str, name: str) -> str:
    return f"{name.replace('-', '_')}=True" if known().get(name) else whole


def _option(whole: str, name: str, value: str | None) -> str:
    if known().get(name, True):
        return whole  # an option of another program
    keyword = name.replace("-", "_")
    if value is None:
        return f"`{keyword}`"
    return f"{keyword}={value}" if value.isdigit() or value.isupper() else f'{keyword}="{value}"'


def speaks_python(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function with errors that name keywords."""

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except (InputError, WorkerError) as error:
            error.args = (in_python(str(error)), *error.args[1:])
            raise

    return call


def methods_speak_python(kind: T) -> T:
    """Apply `speaks_python` to the constructor and the public methods of a class."""
    for name, value in list(vars(kind).items()):
        if callable(value) and (name == "__init__" or not name.startswith("_")):
            setattr(kind, name, speaks_python(value))
    return kind
