"""A graph drawn from the whole one: some of its edges, some of its halo nodes, counting for more."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Links
from isthmus.kernels import Csr
from isthmus.sample.edges import Edges
from isthmus.sample.norm import Norm


class Drawn(Edges):
    """``picked`` int64 [k]: its halo nodes, as the whole graph numbers them. Degrees stay those of the whole graph."""

    def __init__(
        self,
        whole: Edges,
        links: Links,
        picked: Tensor,
        halo: Csr,
        halo_scale: Tensor,  # [k]: what a halo row counts
        inner: Csr | None = None,  # None: all inner edges
        inner_scale: float = 1.0,  # what an inner edge counts
        edge_attr: tuple[Tensor, Tensor] | None = None,
    ):
        super().__init__(
            inner=inner or whole.inner,
            halo=halo,
            links=links,
            nodes=whole.nodes,
            halo_nodes=whole.halo_nodes[picked],
            degree=whole.degree,
            halo_degree=whole.halo_degree[picked],
            symmetric=whole.symmetric,
            edge_attr=edge_attr,
        )
        self.whole, self.picked, self.halo_scale, self.inner_scale = whole, picked, halo_scale, inner_scale

    def norm(self, name: str, dtype: torch.dtype) -> Norm:
        if (name, dtype) not in self._norms:
            self._norms[name, dtype] = self.whole.norm(name, dtype).drawn(self.picked, self.halo_scale)
        return self._norms[name, dtype]

    def halo_rows(self, rows: Tensor) -> Tensor:
        return rows[self.picked]

    def aggregate_inner(self, x: Tensor, norm: Norm) -> Tensor:
        if self.inner_scale == 1:
            return super().aggregate_inner(x, norm)
        return self._weighed(self.inner, x, norm.target, norm.source, norm.add_self)

    def spread_inner(self, grad: Tensor, norm: Norm) -> Tensor:
        if self.inner_scale == 1:
            return super().spread_inner(grad, norm)
        return self._weighed(self.inner_out, grad, norm.source, norm.target, norm.add_self)

    def _weighed(self, csr: Csr, x: Tensor, row: Tensor | None, col: Tensor | None, add_self: bool) -> Tensor:
        """row · (inner_scale · A + [self] I) col · X: only edges were drawn, the self loop always stays."""
        out = kernels.aggregate(csr, x, col_scale=col, row_scale=row).mul_(self.inner_scale)
        if add_self:
            scale = out.new_ones(len(out)) if row is None or col is None else row * col
            out.addcmul_(x.to(out.dtype), scale[:, None])
        return out

    @cached_property
    def inner_out(self) -> Csr:
        return self.whole.inner_out if self.inner is self.whole.inner else super().inner_out
