"""PyG convolutions and whole PyG models, distributed.

Any convolution that accepts bipartite input works as it is:

    conv((graph.halo(x), x), graph.edge_index)

`Halo(conv)` is that line as a module. `distribute(model)` makes every convolution of a model do it when a `LocalGraph`
stands where PyG has an ``edge_index``, so that the model's own code need not change.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from isthmus.errors import InputError
from isthmus.local import LocalGraph
from isthmus.nn.layers import propagate


class Halo(nn.Module):
    """A PyG convolution that takes ``(graph, x)``: halo rows are fetched, then the convolution sees a bipartite graph.

    ``edge_attr=True`` passes the graph's edge attributes on. Convolutions without a bipartite form (GCNConv) have
    their own here: `isthmus.nn.GCNConv`.
    """

    def __init__(self, conv: nn.Module, edge_attr: bool = False):
        super().__init__()
        self.conv, self.edge_attr = conv, edge_attr

    def forward(self, graph: LocalGraph, x: Tensor, **options) -> Tensor:
        if self.edge_attr:
            options["edge_attr"] = graph.edge_attr
        return self.conv((graph.halo(x), x), graph.edge_index, **options)


def distribute(model: nn.Module) -> nn.Module:
    """The same model, which now also takes a `LocalGraph` where it takes an ``edge_index``: ``model(x, graph)``.

    Its weights and their names stay as they are. If its first argument is called x, as is PyG's custom, it can be
    called as ``model(graph, x)`` too, which is how the engine does it. Layers that normalise over all nodes are
    refused: a worker has only some of them.
    """
    _check_norms(model)
    convs = [conv for conv in _bare_convs(model) if not isinstance(conv.forward, partial)]
    for conv in convs:
        way = _gcn if any(cls.__name__ == "GCNConv" for cls in type(conv).__mro__) else _bipartite
        conv.forward = partial(way, conv, conv.forward)
    if convs and model not in convs and next(iter(inspect.signature(model.forward).parameters), None) == "x":
        model.forward = partial(_either_order, model.forward)
    return model


def _bare_convs(model: nn.Module) -> Iterator[nn.Module]:
    """PyG's convolutions but for those that a `Halo` holds."""
    if _is_pygs(model, "conv"):
        yield model
    elif not isinstance(model, Halo):
        for child in model.children():
            yield from _bare_convs(child)


def _is_pygs(module: nn.Module, room: str) -> bool:
    """Whether it stems from torch_geometric.nn.ROOM, without importing PyG."""
    return any(cls.__module__.startswith(f"torch_geometric.nn.{room}") for cls in type(module).__mro__)


def _bipartite(conv: nn.Module, forward: Callable, x: Tensor, edge_index: Any, *rest: Any, **options: Any) -> Tensor:
    if isinstance(edge_index, LocalGraph):
        return forward((edge_index.halo(x), x), edge_index.edge_index, *rest, **options)
    return forward(x, edge_index, *rest, **options)


def _gcn(conv: Any, forward: Callable, x: Tensor, edge_index: Any, edge_weight: Any = None) -> Tensor:
    """GCNConv has no bipartite form, since it needs degrees of halo nodes; the graph knows them."""
    if not isinstance(edge_index, LocalGraph):
        return forward(x, edge_index, edge_weight)
    if edge_weight is not None or conv.improved or not (conv.normalize and conv.add_self_loops):
        raise InputError("a distributed GCNConv has self loops, its usual norm and no edge weights: take GraphConv")
    out = propagate(edge_index, x, conv.lin.weight, "gcn")
    return out if conv.bias is None else out + conv.bias


def _either_order(forward: Callable, first: Any, second: Any, *rest: Any, **options: Any) -> Tensor:
    if isinstance(first, LocalGraph):
        first, second = second, first
    return forward(first, second, *rest, **options)


def _check_norms(model: nn.Module) -> None:
    for name, module in model.named_modules():
        of_rows = type(module).__name__ == "MessageNorm" or getattr(module, "mode", "") == "node"
        if isinstance(module, _BatchNorm | nn.modules.instancenorm._InstanceNorm) or (
            _is_pygs(module, "norm") and not of_rows
        ):
            raise InputError(
                f"{name} ({type(module).__name__}) normalises over all nodes, of which a worker has only some: "
                "take torch.nn.LayerNorm, which normalises each node by itself"
            )
