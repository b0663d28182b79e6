"""Reword error messages for Python: rooms name options as on the command line, Python users know keywords.

The functions of ``import isthmus`` pass their errors through `in_python`; the commands do not.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar

from isthmus.errors import InputError, WorkerError

T = TypeVar("T", bound=type)

SWITCHES = ("directed", "inductive", "layer-norm", "overwrite", "quiet", "resume", "tensorboard", "trust", "undirected")
OPTIONS = (
    *("balance", "block-nodes", "checkpoint-every", "dropout", "dtype", "eval-every", "features", "heads", "hidden"),
    *("input-dropout", "launcher", "layers", "lr", "method", "metric", "model", "nodes", "objective", "optimizer"),
    *("order", "out", "parts", "patience", "probe-every", "recipe", "restarts", "rows-dtype", "seed", "set", "split"),
    *("passes", "steps", "threads", "timeout", "tolerance", "track", "weight-decay", "what", "workers"),
)
_VALUE = r"(?: (\d+|[A-Z]+|float32|float64|bf16|ldg|ray|random|wandb|mlflow|none)\b)?"
_HYPHENED = rf"(?<![\w-])({'|'.join(name for name in (*SWITCHES, *OPTIONS) if '-' in name)})(?![\w-])"
_COMMAND = r"`isthmus partition SOURCE --parts N --out DIR`"


def in_python(text: str) -> str:
    """Replace the options in a message by keywords.

    ``--undirected`` → ``undirected=True``, ``--method ldg`` → ``method="ldg"``, ``another --out`` → another `out`. Text
    in backquotes is a command and stays as it is.
    """
    text = text.replace(_COMMAND, "isthmus.partition(source, N, out=DIR)")
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(piece if piece.startswith("`") else _keywords(piece) for piece in pieces)


def _keywords(text: str) -> str:
    text = re.sub(r"--([a-z-]+)\b", lambda found: _switch(found[0], found[1]), text)
    text = re.sub(rf"--([a-z-]+)\b{_VALUE}", lambda found: _option(*found.group(0, 1, 2)), text)
    return re.sub(_HYPHENED, lambda found: found[0].replace("-", "_"), text)


def _switch(whole: str, name: str) -> str:
    return f"{name.replace('-', '_')}=True" if name in SWITCHES else whole


def _option(whole: str, name: str, value: str | None) -> str:
    if name not in OPTIONS:
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
