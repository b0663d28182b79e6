"""The call of a distributed model: whichever way its forward is written, it can be called with a `LocalGraph`.

| its forward | is called as |
|---|---|
| ``forward(graph, x)`` | as it is |
| ``forward(x, edge_index, …)``, PyG's `Sequential` | ``forward(x, graph, …)``; edge_weight and edge_attr by name |
| ``forward(data)`` | ``forward(LocalData(graph, x))`` |
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from isthmus.errors import InputError
from isthmus.local import LocalGraph
from isthmus.nn.node_dropout import NodeDropout
from isthmus.nn.scope import Scope

OF_EDGES = ("edge_weight", "edge_attr")  # by these names a forward is given what the edges carry


class LocalData:
    """A worker's nodes in the form of PyG's ``Data``, for models whose forward takes one: edge_index is the graph."""

    def __init__(self, graph: LocalGraph, x: Tensor, **more: Any):
        self.graph, self.edge_index, self.x = graph, graph, x
        self.batch, self.pos = None, None
        self.num_nodes, self.num_features = len(x), x.shape[1]
        for name, value in more.items():
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name in OF_EDGES:
            return self.graph.carried(name)
        if name.startswith("__"):
            raise AttributeError(name)
        raise InputError(f"the model reads data.{name}: a worker's data has {', '.join([*vars(self), *OF_EDGES])}")


@dataclass
class Calling:
    """The forward of a distributed model, in place of its own."""

    forward: Callable[..., Any]
    scope: Scope
    names: tuple[str, ...]
    """The parameters of the model's own forward, without the graph's and the rows'."""
    style: str
    """The first parameters: graph, x or data."""
    dropout: Callable[[LocalGraph], Any] = NodeDropout

    @staticmethod
    def of(model: nn.Module, graph: LocalGraph | None, whole: bool) -> Calling:
        """Return how to call a model; ``whole``: it is a model, not a single convolution."""
        parameters = inspect.signature(model.forward).parameters
        names, needed = list(parameters), [p.name for p in parameters.values() if p.default is p.empty]
        if type(model).__module__ == "torch_geometric.nn.sequential":
            names = needed = list(model.signature.param_dict)  # type: ignore[union-attr, arg-type]
        style = names[0] if names and names[0] in ("x", "data") else "graph"
        if style == "data" and len(needed) > 1:
            raise InputError(f"forward takes data and {needed[1]}: let it take data alone, or (x, edge_index)")
        unknown = [name for name in needed[2:] if name not in OF_EDGES] if style == "x" and whole else []
        if unknown:
            raise InputError(f"forward takes {unknown[0]}, which a worker's graph does not have: give it a default")
        # PyG's own models say what their convolutions heed.
        names = [name for name in names[2:] if getattr(model, f"supports_{name}", True)]
        return Calling(model.forward, Scope(graph), tuple(names if style == "x" else ()), style)

    @property
    def reads_edges(self) -> bool:
        """Whether the model may read what the edges carry: by a parameter of that name, or from the graph or data."""
        return self.style != "x" or any(name in self.names for name in OF_EDGES)

    def __call__(self, *given: Any, **options: Any) -> Any:
        graph = next((one for one in (*given, *options.values()) if isinstance(one, LocalGraph)), None)
        if graph is None and given and isinstance(given[0], LocalData):
            graph = given[0].graph
        if graph is None:
            with self.scope.of(None):
                return self.forward(*given, **options)
        if len(given) > 1 and given[0] is graph and self.style == "x":
            given = (given[1], graph, *given[2:])
        elif len(given) == 2 and self.style == "data":
            rows = given[0] if given[1] is graph else given[1]
            given = (LocalData(graph, rows),)
        for name in OF_EDGES:
            if name in self.names and name not in options and len(given) < 3:
                options[name] = graph.carried(name)
        with self.scope.of(graph), self.dropout(graph) if graph.runtime.training else nullcontext():
            return self.forward(*given, **options)
