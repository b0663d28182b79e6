"""Torch's dropout in a distributed model, drawn by node: its masks are then the same for any number of workers.

A model that calls ``torch.nn.functional.dropout`` (or has an `nn.Dropout`) would draw from each worker's own generator.
Within `NodeDropout` a mask is a function of (seed, step, call, row, feature) instead, as in `LocalGraph.dropout`. A
row's key is its node; of an edge's row, such as attention, its two nodes; of any other row, its number.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from isthmus.local import LocalGraph
from isthmus.local.dropout import dropout

_PRIME = 0x9E3779B97F4A7C15 - (1 << 64)  # odd: products with it, modulo 2^64, are all different


class NodeDropout(TorchFunctionMode):
    """A context in which torch's dropout draws by node."""

    def __init__(self, graph: LocalGraph):
        super().__init__()
        self.graph = graph

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not functional.dropout:
            return func(*args, **kwargs)
        return self._drop(*args, **kwargs)

    def _drop(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or not 0 < p < 1 or not input.dim():
            return functional.dropout(input, p, training, inplace)
        run = self.graph.runtime
        of_edges = self.graph.convolving and len(input) in self._edge_rows
        if input.dim() == 2 and len(input) == self.graph.num_rows and input.is_floating_point() and not of_edges:
            return self.graph.dropout(input, p)
        flat = input.reshape(len(input), -1)
        dropped = dropout(flat, self._keys(len(input), input.device), run.next_mask(p).stream(run.step), p, False)
        return dropped.view_as(input)

    def _keys(self, rows: int, device: torch.device) -> Tensor:
        """Return what draws the mask of each row."""
        drawn = self.graph.runtime.drawn
        nodes = torch.cat([drawn.nodes, drawn.halo_nodes])
        if self.graph.convolving and rows in self._edge_rows:
            source, target = drawn.edge_index
            keys = nodes[source] * _PRIME + nodes[target]
            loops = self.graph.nodes * (_PRIME + 1)  # as PyG's convolutions add them, at the end
            return torch.cat([keys, loops])[:rows]
        if rows == self.graph.num_rows:
            return self.graph.nodes
        return nodes if rows == len(nodes) else torch.arange(rows, device=device)

    @property
    def _edge_rows(self) -> tuple[int, int]:
        """The numbers of rows of what a convolution computes for edges, without and with a self loop of every node."""
        edges = self.graph.runtime.drawn.num_edges
        return edges, edges + self.graph.num_rows
