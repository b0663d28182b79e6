"""The same edges, towards some of the rows only."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from isthmus.kernels import Csr
from isthmus.sample.drawn import Pattern
from isthmus.sample.edges import Edges
from isthmus.sample.norm import Norm


class Targets(Edges):
    """Of an aggregation's n rows the m that are asked for: m × n inner edges, m × h from halo nodes; the same links.

    Self loops are edges among others here: row r of the result is not row r of what is read.
    """

    def __init__(self, edges: Edges, rows: Tensor, with_self: bool, like: Targets | None = None):
        """``rows`` int64 [m]. ``like``: another with all inner edges, parted already; for graphs that keep them all."""
        like = like if edges.inner_weight is None else None
        inner = Pattern(like.inner) if like else _towards(edges.inner, edges.inner_weight, rows, with_self)
        halo = _towards(edges.halo, edges.halo_weight, rows, False)
        super().__init__(
            inner=inner.csr,
            halo=halo.csr,
            links=edges.links,
            nodes=edges.nodes,
            halo_nodes=edges.halo_nodes,
            degree=edges.degree,
            halo_degree=edges.halo_degree,
            symmetric=False,
        )
        if like:
            self.inner_out = like.inner_out
        elif inner.weight is not None:
            turned, self.inner_weight = inner.turned(), inner.weight
            self.inner_out, self.inner_out_weight = turned.csr, turned.weight
        if halo.weight is not None:
            turned, self.halo_weight = halo.turned(), halo.weight
            self.halo_out, self.halo_out_weight = turned.csr, turned.weight
        self._of, self._rows = edges, rows

    def norm(self, name: str, dtype: torch.dtype) -> Norm:
        if (name, dtype) not in self._norms:
            norm = self._of.norm(name, dtype)
            target = None if norm.target is None else norm.target[self._rows]
            self._norms[name, dtype] = replace(norm, target=target, add_self=False)
        return self._norms[name, dtype]


def _towards(csr: Csr, weight: Tensor | None, rows: Tensor, with_self: bool) -> Pattern:
    """Some rows of a pattern; with a self loop in front of each, which counts one."""
    parted, at = csr.take(rows)
    weight = None if weight is None else weight[at]
    if not with_self:
        return Pattern(parted, weight)
    looped = parted.after(rows)
    if weight is None:
        return Pattern(looped)
    weights, loops = weight.new_ones(looped.num_edges), torch.zeros(looped.num_edges, dtype=torch.bool)
    loops[looped.indptr[:-1]] = True
    weights[~loops] = weight
    return Pattern(looped, weights)
