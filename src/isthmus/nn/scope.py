"""The graph that a distributed model is called with, for modules of it that are not given one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from isthmus.local import LocalGraph


class Scope:
    """The `LocalGraph` of the forward pass that runs; outside of one, the graph that it was made for, if any.

    Norms and dropout take only rows, so the model's own call sets it for them.
    """

    def __init__(self, graph: LocalGraph | None = None):
        self.graph = graph

    @contextmanager
    def of(self, graph: LocalGraph | None) -> Iterator[None]:
        before, self.graph = self.graph, graph
        try:
            yield
        finally:
            self.graph = before

    def __deepcopy__(self, memo: dict[int, Any]) -> Scope:
        copied = memo[id(self)] = Scope(self.graph)
        return copied


def is_pygs(module: nn.Module, room: str) -> bool:
    """Return whether a module's class comes from torch_geometric.nn.ROOM, without importing PyG."""
    return any(cls.__module__.startswith(f"torch_geometric.nn.{room}") for cls in type(module).__mro__)
