"""The options of cutting a graph, declared once and shown in the signature of every function that takes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class PartitionOptions:
    """The options that say how a graph is cut, ordered and written. None: the method's default."""

    method: str = "metis"
    cut: str = "edge"
    """Where edges live: "edge", with the owner of their target; "cover", at either end, so that the fewest rows are
    sent; "vertex", anywhere."""
    objective: str | None = None
    """The quantity that METIS minimises: "cut" or "vol"."""
    balance: tuple[str, ...] | None = None
    """Loads of which all parts get an equal share."""
    tolerance: float | None = None
    passes: int | None = None
    order: str | None = None
    """The order of nodes inside a part: "metis", "ldg" or "given" (default: "metis", but "ldg" with the method ldg or
    above 200M edges per part)."""
    block_nodes: int = 4000
    """Nodes per block of that order."""
    seed: int = 0
    overwrite: bool = False


def shows_options(function: F) -> F:
    """Spell out the fields of `PartitionOptions` in the signature of a function that takes them as ``**options``."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    more = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type)
        for f in fields(PartitionOptions)
        if f.name not in signature.parameters
    ]
    function.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
    return function
