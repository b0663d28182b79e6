"""A graph drawn from the whole one: fewer edges or halo nodes, with weights that make up for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Links
from isthmus.kernels import Csr
from isthmus.shard.norm import Norm
from isthmus.shard.shard import EdgeAttr, Shard


@dataclass(frozen=True)
class Pattern:
    """Edges, the weight of each (None: one), and what they carry."""

    csr: Csr
    weight: Tensor | None = None  # [edges]
    data: Tensor | None = None  # [edges] or [edges, D]

    def turned(self) -> Pattern:
        """Return the transpose."""
        csr, order = kernels.transpose(self.csr)
        weight, data = (None if one is None else one[order] for one in (self.weight, self.data))
        return Pattern(csr, weight, data)

    def of_rows(self, rows: Tensor) -> Pattern:
        """Return some of the rows (int64, in this order)."""
        csr, at = self.csr.take(rows)
        weight, data = (None if one is None else one[at] for one in (self.weight, self.data))
        return Pattern(csr, weight, data)

    def weighed(self) -> Pattern:
        """Return the pattern whose every edge counts as often as before times the one number that it carries."""
        assert self.data is not None, "these edges carry no weight"
        own = self.data.reshape(-1)
        return replace(self, weight=own if self.weight is None else own * self.weight.to(own.dtype))

    def to(self, device: torch.device) -> Pattern:
        """Return the pattern on a device."""
        weight, data = (None if one is None else one.to(device) for one in (self.weight, self.data))
        return Pattern(self.csr.to(device), weight, data)

    def both_ways(self) -> BothWays:
        """Return the pattern with its transpose."""
        return BothWays(self, self.turned())


class BothWays(NamedTuple):
    """A pattern of edges, and its transpose."""

    edges: Pattern
    turned: Pattern


class Drawn(Shard):
    """A graph that a sampler drew from the whole one. Degrees stay those of the whole graph."""

    def __init__(
        self,
        whole: Shard,
        links: Links,
        picked: Tensor,  # int64 [k]: its halo nodes, as the whole graph numbers them
        halo: BothWays,  # n × k
        inner: BothWays | None = None,  # n × n; None: all inner edges
        halo_scale: Tensor | None = None,  # float64 [k]: how often a halo row counts
        edge_attr: EdgeAttr = None,
    ):
        super().__init__(
            inner=whole.inner if inner is None else inner.edges.csr,
            halo=halo.edges.csr,
            links=links,
            nodes=whole.all_nodes.with_halo(picked),
            symmetric=whole.symmetric,
            edge_attr=edge_attr,
        )
        self.whole, self._picked, self.halo_scale = whole, picked, halo_scale
        self.halo_weight, self.halo_out, self.halo_out_weight = halo.edges.weight, halo.turned.csr, halo.turned.weight
        if inner is None:
            self.inner_out = whole.inner_out
        else:
            self.inner_weight, self.inner_out = inner.edges.weight, inner.turned.csr
            self.inner_out_weight = inner.turned.weight
        if whole.weighted:
            self._weigh(inner is not None)

    def _weigh(self, inner_drawn: bool) -> None:
        """Multiply the weights that make up for what was not drawn with those of the edges themselves."""
        self.weighted_degrees = self.whole.weighted_degrees  # norms are those of the whole graph
        inner, halo = (one.reshape(-1) for one in self.attributes())
        pattern = Pattern(self.halo, halo if self.halo_weight is None else halo * self.halo_weight).both_ways()
        self.halo_weight, (self.halo_out, self.halo_out_weight) = pattern.edges.weight, _parts(pattern.turned)
        if not inner_drawn:
            self.inner_weight, self.inner_out_weight = self.whole.inner_weight, self.whole.inner_out_weight
            return
        pattern = Pattern(self.inner, inner if self.inner_weight is None else inner * self.inner_weight).both_ways()
        self.inner_weight, (self.inner_out, self.inner_out_weight) = pattern.edges.weight, _parts(pattern.turned)

    def norm(self, name: str, dtype: torch.dtype) -> Norm:
        if (name, dtype) not in self._norms:
            self._norms[name, dtype] = self.whole.norm(name, dtype).drawn(self._picked, self.halo_scale)
        return self._norms[name, dtype]

    @property
    def picked(self) -> Tensor:
        return self._picked


def _parts(pattern: Pattern) -> tuple[Csr, Tensor | None]:
    return pattern.csr, pattern.weight
