"""The same edges, towards some of the rows only."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from isthmus.sample.drawn import Pattern
from isthmus.sample.edges import Edges
from isthmus.sample.norm import Norm


class Targets(Edges):
    """Of an aggregation's n rows the m that are asked for: m × n inner edges, m × h from halo nodes; the same links.

    Self loops are edges among others here: row r of the result is not row r of what is read.
    """

    def __init__(self, edges: Edges, rows: Tensor, with_self: bool, like: Targets | None = None):
        """``rows`` int64 [m]; all inner edges count one; ``like``: another with the same ones, not to be made again."""
        assert edges.inner_weight is None, "inner edges that were drawn are not parted"
        inner = edges.inner.take(rows)[0] if like is None else like.inner
        halo, at = edges.halo.take(rows)
        super().__init__(
            inner=inner.after(rows) if like is None and with_self else inner,
            halo=halo,
            links=edges.links,
            nodes=edges.nodes,
            halo_nodes=edges.halo_nodes,
            degree=edges.degree,
            halo_degree=edges.halo_degree,
            symmetric=False,
        )
        if like is not None:
            self.inner_out = like.inner_out
        if edges.halo_weight is not None:
            self.halo_weight = edges.halo_weight[at]
            turned = Pattern(halo, self.halo_weight).turned()
            self.halo_out, self.halo_out_weight = turned.csr, turned.weight
        self._of, self._rows = edges, rows

    def norm(self, name: str, dtype: torch.dtype) -> Norm:
        if (name, dtype) not in self._norms:
            norm = self._of.norm(name, dtype)
            target = None if norm.target is None else norm.target[self._rows]
            self._norms[name, dtype] = replace(norm, target=target, add_self=False)
        return self._norms[name, dtype]
