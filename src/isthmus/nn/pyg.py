"""Distribute PyG convolutions and whole PyG models.

Any convolution that accepts bipartite input works as it is:

    conv((graph.halo(x), x), graph.edge_index)

`Halo(conv)` is that line as a module. `distribute(model)` makes every convolution of a model do it when it is given a
`LocalGraph` in place of PyG's ``edge_index``, so that the model's own code need not change.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from isthmus.errors import InputError
from isthmus.local import LocalGraph
from isthmus.nn.calling import Calling
from isthmus.nn.compiled import check_not_compiled
from isthmus.nn.norms import share_norms
from isthmus.nn.scope import is_pygs

NO_PAIRS = "takes no pair of rows (sources, targets)"


class Halo(nn.Module):
    """A PyG convolution that takes ``(graph, x)``: halo rows are fetched, then the convolution sees a bipartite graph.

    ``edge_attr=True`` passes the graph's edge attributes on. Convolutions without a bipartite form (GCNConv) have
    their own here: `isthmus.nn.GCNConv`.
    """

    def __init__(self, conv: nn.Module, edge_attr: bool = False):
        super().__init__()
        self.conv, self.edge_attr = conv, edge_attr

    def forward(self, graph: LocalGraph, x: Tensor, **options) -> Tensor:
        rows = graph.pair(x)
        if self.edge_attr:
            options["edge_attr"] = graph.edge_attr
        return self.conv(rows, graph.edge_index, **options)


def distribute(model: nn.Module, graph: LocalGraph | None = None) -> nn.Module:
    """Let a model also take a `LocalGraph` where it takes an ``edge_index``, ``model(x, graph)``; return the model.

    Its weights and their names stay as they are. It can be called as ``model(graph, x)`` too, as the engine does
    (`nn.calling`). Norms over all nodes see the rows of all workers (`nn.norms`), and dropout draws by node
    (`nn.node_dropout`). Convolutions that cannot read halo rows are refused when they are given a `LocalGraph`.
    ``graph`` is the one that methods besides ``forward`` mean.
    """
    check_not_compiled(model)
    if any(isinstance(parameter, UninitializedParameter) for parameter in model.parameters()):
        raise InputError("the model has layers of unknown width: give the number of features instead of -1")
    if isinstance(model.forward, Calling):
        model.forward.scope.graph = graph or model.forward.scope.graph
        return model
    convs = [conv for conv in _bare_convs(model) if not isinstance(conv.forward, partial)]
    calling = Calling.of(model, graph, whole=model not in convs)
    share_norms(model, calling.scope)
    for conv in convs:
        conv.forward = partial(_gcn if _is_plain_gcn(conv) else _bipartite, conv, conv.forward)
    if model not in convs:
        model.forward = calling
    return model


def _bare_convs(model: nn.Module) -> Iterator[nn.Module]:
    """Yield PyG's convolutions except those inside a `Halo`."""
    if is_pygs(model, "conv"):
        yield model
    elif not isinstance(model, Halo):
        for child in model.children():
            yield from _bare_convs(child)


def _is_plain_gcn(conv: nn.Module) -> bool:
    """Return whether this is PyG's own GCNConv, or a subclass that computes the same."""
    steps = ("forward", "message", "message_and_aggregate", "aggregate", "update")
    base = next((cls for cls in type(conv).__mro__ if cls.__name__ == "GCNConv" and _is_pygs_conv(cls)), None)
    return base is not None and all(getattr(type(conv), step) is getattr(base, step) for step in steps)


def _is_pygs_conv(cls: type) -> bool:
    return cls.__module__.startswith("torch_geometric.nn.conv")


def _bipartite(conv: nn.Module, forward: Callable, x: Tensor, edge_index: Any, *rest: Any, **options: Any) -> Tensor:
    if not isinstance(edge_index, LocalGraph):
        return forward(x, edge_index, *rest, **options)
    if refusal := _refusal(conv):
        raise InputError(f"{type(conv).__name__} {refusal}: take another convolution, or `isthmus.nn`'s own")
    if edge_index.runtime.whole.replicated:
        raise InputError(
            f"{type(conv).__name__} reads all edges of a node, which are on several workers under a vertex-cut: take "
            "GCNConv or the models gcn, sage and gat, or parts of an edge-cut (isthmus partition --cut edge)"
        )
    rows = edge_index.pair(x)
    if edge_index.runtime.layers is not None:
        names = list(inspect.signature(forward).parameters)[2:]
        rest = tuple(_of_layer(edge_index, name, value) for name, value in zip_longest(names[: len(rest)], rest))
        options = {name: _of_layer(edge_index, name, value) for name, value in options.items()}
    edge_index.convolving = True
    try:
        return forward(rows, edge_index.edge_index, *rest, **options)
    except (AttributeError, TypeError, ValueError) as error:
        if "tuple" not in str(error):
            raise
        raise InputError(f"{type(conv).__name__} {NO_PAIRS} ({error}): take another convolution") from error
    finally:
        edge_index.convolving = False


def _of_layer(graph: LocalGraph, name: str | None, value: Any) -> Any:
    """Return an argument of a convolution, of the edges of its own layer if it is one of edges."""
    of_edges = isinstance(value, Tensor) and name is not None and name.startswith("edge_")
    return graph.of_layer(value) if of_edges else value


def _refusal(conv: Any) -> str:
    """Return why this convolution would compute something else on parts than on the whole graph, or nothing."""
    kind = type(conv).forward
    takes = inspect.signature(kind).parameters.get("x")
    if getattr(conv, "flow", "source_to_target") != "source_to_target":
        return "sends messages against the edges, for which other halo rows would be needed"
    if type(getattr(conv, "aggr_module", None)).__name__ in ("LSTMAggregation", "GRUAggregation"):
        return "depends on the order of the edges, which differs on parts"
    only_rows = takes is not None and takes.annotation is Tensor and kind.__module__.startswith("torch_geometric.")
    return NO_PAIRS if only_rows and type(conv).__name__ != "RGATConv" else ""


def _gcn(conv: Any, forward: Callable, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
    """Compute a GCNConv, which has no bipartite form since it needs degrees of halo nodes; the graph knows them."""
    if not isinstance(edge_index, LocalGraph):
        return forward(x, edge_index, edge_weight)
    graph = edge_index
    if conv.aggr != "add" or conv.flow != "source_to_target":
        raise InputError("a distributed GCNConv sums along the edges (aggr and flow): take GraphConv")
    usual = conv.normalize and conv.add_self_loops and not conv.improved
    weighted = graph.runtime.whole.weighted
    if usual and (graph.is_weight(edge_weight) if weighted else edge_weight is None):
        return graph.propagate(x, conv.lin.weight, "gcn", bias=conv.bias)
    out = _gcn_by_edges(conv, graph, conv.lin(x), edge_weight)
    return out if conv.bias is None else out + conv.bias


def _gcn_by_edges(conv: Any, graph: LocalGraph, x: Tensor, edge_weight: Tensor | None) -> Tensor:
    """Return what a GCNConv sums with weights of the edges, or with another norm; degrees of halo nodes are fetched."""
    if graph.runtime.layers is not None or graph.runtime.drawn is not graph.runtime.whole:
        usual = "--edge-weights none, " if edge_weight is None and graph.runtime.whole.weighted else ""
        raise InputError(
            "a GCNConv with weights that are not those of the graph, or with another norm than the usual, needs all "
            f"edges of the graph: take {usual}a recipe that draws none, such as exact, or another convolution"
        )
    edges = graph.edge_index
    weight = x.new_ones(edges.shape[1]) if edge_weight is None else edge_weight.to(x.dtype)
    loops = (2.0 if conv.improved else 1.0) if conv.add_self_loops else 0.0
    own = x * loops
    if conv.normalize:
        degree = x.new_zeros(len(x)).index_add(0, edges[1], weight) + loops
        scale = torch.where(degree > 0, degree, 1).rsqrt() * (degree > 0)
        every = graph.halo(scale[:, None])[:, 0]
        weight, own = every[edges[0]] * weight * scale[edges[1]], own * scale[:, None].square()
    return own + conv.propagate(edges, x=(graph.halo(x), x), edge_weight=weight)
