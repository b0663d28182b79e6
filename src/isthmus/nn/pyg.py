"""PyG convolutions, distributed.

Any convolution that accepts bipartite input works as it is:

    conv((graph.halo(x), x), graph.edge_index)

`Halo(conv)` is that line as a module, so that a model made of PyG convolutions changes only where they are built.
"""

from __future__ import annotations

from torch import Tensor, nn

from isthmus.local import LocalGraph


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
