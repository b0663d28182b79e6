"""A graph drawn from the whole one: fewer edges or halo nodes, with weights that make up for it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Links
from isthmus.kernels import Csr
from isthmus.shard.norm import Norm
from isthmus.shard.shard import EdgeAttr, Shard


@dataclass(frozen=True)
class Pattern:
    """Edges, and the weight of each (None: one)."""

    csr: Csr
    weight: Tensor | None = None

    def turned(self) -> Pattern:
        """Return the transpose."""
        csr, order = kernels.transpose(self.csr)
        return Pattern(csr, None if self.weight is None else self.weight[order])


class Drawn(Shard):
    """A drawn graph; ``picked`` int64 [k] numbers its halo nodes in the whole graph, whose degrees it keeps."""

    def __init__(
        self,
        whole: Shard,
        links: Links,
        picked: Tensor,
        halo: Pattern,  # n × k
        halo_out: Pattern | None = None,  # k × n: its transpose, if that is at hand
        halo_scale: Tensor | None = None,  # float64 [k]: factor of each halo row
        inner: Pattern | None = None,  # None: all inner edges
        inner_out: Pattern | None = None,
        edge_attr: EdgeAttr = None,
    ):
        super().__init__(
            inner=whole.inner if inner is None else inner.csr,
            halo=halo.csr,
            links=links,
            nodes=whole.nodes,
            halo_nodes=whole.halo_nodes[picked],
            degree=whole.degree,
            halo_degree=whole.halo_degree[picked],
            symmetric=whole.symmetric,
            edge_attr=edge_attr,
        )
        self.whole, self._picked, self.halo_scale = whole, picked, halo_scale
        self.halo_weight = halo.weight
        if halo_out is not None:
            self.halo_out, self.halo_out_weight = halo_out.csr, halo_out.weight
        if inner is None:
            self.inner_out = whole.inner_out
        elif inner_out is not None:
            self.inner_weight, self.inner_out, self.inner_out_weight = inner.weight, inner_out.csr, inner_out.weight

    def norm(self, name: str, dtype: torch.dtype) -> Norm:
        if (name, dtype) not in self._norms:
            self._norms[name, dtype] = self.whole.norm(name, dtype).drawn(self._picked, self.halo_scale)
        return self._norms[name, dtype]

    @property
    def picked(self) -> Tensor:
        return self._picked
