"""PSC-GCN's sampler (alg. 2): each node reads a share ε of its neighbours, those with large rows more often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.errors import InputError
from isthmus.kernels import WaterFilling
from isthmus.sample.noise import quiet_levels
from isthmus.sample.row_norms import SMALLEST, RowNorms
from isthmus.shard.draw_context import DrawContext, ReadRequest
from isthmus.shard.drawn import BothWays, Pattern
from isthmus.shard.shard import EdgeAttr, Shard

_SALT = 0x95C


@dataclass(frozen=True)
class Levels:
    """The probabilities p_ij = min(1, level_i · value_j) of all edges, as one number per target and one per source."""

    level: Tensor  # float64 [n]
    inner: Tensor  # float64 [n], values
    halo: Tensor  # float64 [h]


class KeptEdges(NamedTuple):
    """The edges that a worker keeps, in the form that `DrawContext.with_edges` takes."""

    halo: BothWays
    inner: BothWays
    edge_attr: EdgeAttr


@dataclass(frozen=True)
class Neighbours:
    r"""A sampler of edges: (i ← j) is kept with probability p_ij and counts 1/p_ij times; self loops always stay.

    .. math:: p_{ij} = \min(1, c_i \sqrt{a_j}\, \|y_{ij}\|), \qquad \sum_j p_{ij} = ε |N_i

    (eq. 19) with a = ``inner_weight`` for inner and 1 for halo neighbours. Until norms of rows are known, p = ε.

    ``least``: no node reads fewer neighbours, unless it has fewer: Σ_j p_ij = max(ε |N_i|, min(|N_i|, least)). In the
    paper's graphs a tenth of the neighbours is many; in a graph where half of the nodes have ten, it is one.

    ``coupled``: all edges of a halo node share one random number, so that they are kept together as far as their
    probabilities allow. Every p_ij and the variance of every Z_i stay the same (a node's neighbours are still
    independent), but a row is fetched with probability max_i p_ij instead of 1 − Π_i (1 − p_ij).

    ``noise``: ε is raised until a draw leaves no more of it in the mean of the rows that the loss reads
    (`sample.noise`); 0: ε as it is.

    ``estimator="self-normalised"``: kept edges count |N_i| / (number kept), as the published code does; biased.
    """

    rate: float = 0.1
    refresh: int = 20
    inner_weight: float = 1.1
    coupled: bool = False
    estimator: str = "horvitz-thompson"
    least: int = 0
    noise: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InputError(f"rate is the share of neighbours kept: it must be above 0 and at most 1, not {self.rate}")
        if self.refresh < 1:
            raise InputError(f"refresh counts steps: it must be at least 1, not {self.refresh}")
        if self.inner_weight <= 0:
            raise InputError(f"inner_weight must be above 0, not {self.inner_weight}")
        if self.least < 0:
            raise InputError(f"least counts neighbours: it must be at least 0, not {self.least}")
        if self.estimator not in ("horvitz-thompson", "self-normalised"):
            raise InputError(f"unknown estimator {self.estimator!r}: use horvitz-thompson or self-normalised")

    def levels(self, context: DrawContext, row_norms: RowNorms | None) -> Levels:
        """Return the probabilities of all edges by water-filling, from the norms of rows that are known."""
        if row_norms is not None and self in row_norms.plans:
            return row_norms.plans[self]
        whole = context.whole
        if row_norms is None or not row_norms.inner:
            counts = whole.num_inner, whole.num_halo
            inner, halo = (torch.ones(count, dtype=torch.float64, device=whole.device) for count in counts)
        else:
            inner = self.inner_weight**0.5 * torch.stack(list(row_norms.inner.values())).sum(0).sqrt()
            halo = torch.stack(list(row_norms.halo.values())).sum(0).sqrt()
        inner, halo = kernels.floored(inner, halo, floor=SMALLEST)
        sides = (whole.inner, inner), (whole.halo, halo)
        found = Levels(quiet_levels(sides, self.rate, self.least, self.noise, context), inner, halo)
        if row_norms is not None:
            row_norms.plans[self] = found
        return found

    def draw(self, context: DrawContext, step: int, row_norms: RowNorms | None = None) -> Shard:
        if self.rate == 1:
            return context.whole
        prepared = self.prepare(context, step, row_norms)
        return self.finish(context, prepared, self.ask(context, step, prepared))

    def prepare(self, context: DrawContext, step: int, row_norms: RowNorms | None) -> KeptEdges:
        """Draw the edges that this worker keeps."""
        whole, levels = context.whole, self.levels(context, row_norms)
        asked: dict[str, Any] = {"dtype": context.dtype, "with_edges": whole.edge_attributes is not None}
        key = kernels.stream(context.seed, step, _SALT)
        inner, inner_weight, inner_kept = kernels.draw_weighted(
            key, whole.inner, WaterFilling(levels.level, levels.inner), (whole.nodes, whole.nodes), **asked
        )
        key = kernels.stream(context.seed, step, _SALT, 1 + context.transport.rank)
        filling = WaterFilling(levels.level, levels.halo, self.coupled)
        halo, halo_weight, halo_kept = kernels.draw_weighted(
            key, whole.halo, filling, (whole.nodes, whole.halo_nodes), **asked
        )
        if self.estimator == "self-normalised":
            kept = (inner.indptr.diff() + halo.indptr.diff()).clamp_min(1)
            ratio = whole.degree.to(context.dtype) / kept.to(context.dtype)
            inner_weight, halo_weight = ratio[inner.edge_rows], ratio[halo.edge_rows]
        attributes = whole.attributes_of(inner_kept, halo_kept)
        halo_edges, inner_edges = Pattern(halo, halo_weight), Pattern(inner, inner_weight)
        return KeptEdges(halo_edges.both_ways(), inner_edges.both_ways(), attributes)

    def ask(self, context: DrawContext, step: int, prepared: KeptEdges) -> ReadRequest:
        """Tell the owners which of their rows are read, without waiting."""
        return context.ask(prepared.halo.edges.csr, step)

    def finish(self, context: DrawContext, prepared: KeptEdges, asked: ReadRequest) -> Shard:
        return context.with_edges(asked, *prepared)

    def inclusion(self, context: DrawContext, row_norms: RowNorms | None = None) -> Tensor:
        """Return the probability that each halo node is read at all, float64 [h] (sec. V-B)."""
        levels = self.levels(context, row_norms)
        return kernels.inclusion(context.whole.halo_out, WaterFilling(levels.level, levels.halo, self.coupled))
