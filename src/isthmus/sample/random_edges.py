"""Samplers that drop edges instead of boundary nodes: the baselines of BNS-GCN's table 9."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.errors import InputError
from isthmus.kernels import Csr
from isthmus.sample.row_norms import RowNorms
from isthmus.shard.draw_context import DrawContext
from isthmus.shard.drawn import BothWays, Pattern
from isthmus.shard.shard import Shard

_SALT = 0xED6E


@dataclass(frozen=True)
class RandomEdges:
    """A sampler of edges: all that may be dropped are kept with the same probability, and count its inverse.

    On average as many edges are dropped as boundary-node sampling drops at ``rate``: (1 − rate) E_cut of the E_cut
    edges between parts. ``among="boundary"`` takes them from the edges between parts (Boundary Edge Sampling),
    ``among="all"`` from all E edges (DropEdge). The two directions of an undirected edge are kept or dropped together.
    """

    rate: float = 0.1
    among: str = "boundary"
    refresh: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InputError(f"rate is the share of edges kept: it must be above 0 and at most 1, not {self.rate}")

    def kept(self, cut: int, edges: int) -> float:
        """Return the probability that an edge stays, in a graph of ``edges`` edges, ``cut`` of them between parts."""
        return self.rate if self.among == "boundary" else 1 - (1 - self.rate) * cut / max(edges, 1)

    def draw(self, context: DrawContext, step: int, row_norms: RowNorms | None = None) -> Shard:
        whole = context.whole
        if self.rate == 1:
            return whole
        p = self.kept(*whole.totals(context.transport))
        key = kernels.stream(context.seed, step, _SALT)
        kept = kernels.draw_edges(key, whole.halo, whole.nodes, whole.halo_nodes, p, whole.symmetric)
        halo, halo_kept = kernels.select_edges(whole.halo, kept)
        inner, inner_kept = None, None
        if self.among == "all":
            kept = kernels.draw_edges(key, whole.inner, whole.nodes, whole.nodes, p, whole.symmetric)
            csr, inner_kept = kernels.select_edges(whole.inner, kept)
            edges = self._weighted(csr, p, context.dtype)
            inner = BothWays(edges, edges) if whole.symmetric else edges.both_ways()
        attributes = whole.attributes_of(inner_kept, halo_kept)
        edges = self._weighted(halo, p, context.dtype)
        return context.with_edges(context.ask(halo, step), edges.both_ways(), inner, attributes)

    def inclusion(self, context: DrawContext, row_norms: RowNorms | None = None) -> Tensor:
        readers = context.whole.halo_out.indptr.diff().double()
        return 1 - (1 - self.kept(*context.whole.totals(context.transport))) ** readers

    def _weighted(self, csr: Csr, p: float, dtype: torch.dtype) -> Pattern:
        return Pattern(csr, torch.full((csr.num_edges,), 1 / p, dtype=dtype, device=csr.indices.device))
