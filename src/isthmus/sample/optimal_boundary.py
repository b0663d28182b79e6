"""Optimal boundary sampling: all inner edges, and the halo nodes that reduce the variance most per row fetched."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Where
from isthmus.errors import InputError
from isthmus.kernels import Csr
from isthmus.sample.noise import quiet_rate, size_of_sums
from isthmus.sample.row_norms import SMALLEST, RowNorms
from isthmus.shard.draw_context import DrawContext
from isthmus.shard.shard import Shard

_SALT = 0x0B5
_TINY = 1e-300  # a sum of squares that stands for none


@dataclass(frozen=True)
class Probabilities:
    """The probabilities of my halo nodes, and those that readers use for my boundary rows; float32."""

    halo: list[Tensor]  # per owner
    boundary: list[Tensor]  # per reader


@dataclass(frozen=True)
class OptimalBoundary:
    r"""A sampler of halo nodes: node j is kept with probability q_j and counts 1/q_j times.

    .. math:: q_j = \min\Bigl(1, c \sqrt{\textstyle\sum_i P_{ij}^2}\; \|H_j W\|\Bigr), \qquad \sum_j q_j = rate · h

    This minimises Σ_i Var Z_i for the expected number of rows fetched. Readers tell owners their q whenever the norms
    of rows are refreshed; after that both ends draw the same rows, so no ids travel. Until norms are known, q = rate.

    ``noise``: rate is raised until a draw leaves no more of it in the mean of the rows that the loss reads
    (`sample.noise`), and is 1 until norms are known; 0: rate as it is. ``least``: rows that are drawn at least,
    times the number of other workers.
    """

    rate: float = 0.1
    refresh: int = 20
    noise: float = 0.0
    least: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise InputError(f"rate is the share of rows kept: it must be between 0 and 1, not {self.rate}")
        if self.refresh < 1:
            raise InputError(f"refresh counts steps: it must be at least 1, not {self.refresh}")

    def draw(self, context: DrawContext, step: int, row_norms: RowNorms | None = None) -> Shard:
        if self.rate == 1:
            return context.whole
        plan, whole, me = self.plan(context, row_norms), context.whole, context.transport.rank
        owned = [whole.nodes[rows.long()] for rows in whole.links.send_rows]
        read = whole.links.mirrors.split(whole.halo_nodes)
        halo = [self._rows(context.seed, step, me, ids, q) for ids, q in zip(read, plan.halo, strict=True)]
        sent = [self._rows(context.seed, step, r, ids, plan.boundary[r]) for r, ids in enumerate(owned)]
        scale = [1 / q[rows.long()].double() for rows, q in zip(halo, plan.halo, strict=True)]
        return context.with_rows(halo, sent, torch.cat(scale))

    def inclusion(self, context: DrawContext, row_norms: RowNorms | None = None) -> Tensor:
        return torch.cat(self.plan(context, row_norms).halo).double()

    def plan(self, context: DrawContext, row_norms: RowNorms | None) -> Probabilities:
        """Return the probabilities that follow from the norms of rows, at both ends of every link."""
        links = context.whole.links
        if row_norms is None or not row_norms.halo:
            device = links.device
            blind = 1.0 if self.noise else self.rate
            uniform = lambda count: torch.full((count,), blind, dtype=torch.float32, device=device)  # noqa: E731
            return Probabilities(
                [uniform(n) for n in links.mirror_counts], [uniform(len(rows)) for rows in links.send_rows]
            )
        if self not in row_norms.plans:
            halo = self.probabilities(context, row_norms).float()
            where = Where("probabilities", "setup", row_norms.since, "ids")
            boundary = links.push(halo, context.transport, where).wait()
            row_norms.plans[self] = Probabilities(links.mirrors.split(halo), boundary)
        return row_norms.plans[self]

    def probabilities(self, context: DrawContext, row_norms: RowNorms) -> Tensor:
        """Return q of every halo node, float64 [h]."""
        whole = context.whole
        square = torch.zeros(whole.num_halo, dtype=torch.float64, device=whole.device)
        for name, size in row_norms.halo.items():
            target = whole.norm(name, torch.float64).target
            ones = square.new_ones(whole.num_inner)
            squared = (ones if target is None else target**2)[:, None]
            square += size * kernels.aggregate(whole.halo_out, squared)[:, 0]
        (value,) = kernels.floored(square.sqrt(), floor=SMALLEST)
        sums = size_of_sums(context, row_norms) if self.noise else 0.0
        variance = lambda rate: float((square / _filled(value, rate) - square).sum()) / max(sums, _TINY)  # noqa: E731
        least = self.least * (context.transport.size - 1) / max(len(value), 1)
        return _filled(value, quiet_rate(max(self.rate, min(1.0, least)), self.noise, context, variance))

    def _rows(self, seed: int, step: int, reader: int, ids: Tensor, q: Tensor) -> Tensor:
        """Return which of these nodes the reader draws, int32."""
        key = kernels.stream(seed, step, _SALT, reader)
        kept = kernels.draw_edges(key, _one_row(ids), ids.new_zeros(1), ids, q.contiguous(), False)
        return kept.nonzero().flatten().to(torch.int32)


def _filled(value: Tensor, rate: float) -> Tensor:
    """Return q = min(1, c value) with the c at which a share ``rate`` is expected."""
    budget = value.new_full((1,), rate * len(value))
    return (kernels.fill_levels(_one_row(value), None, value, None, budget) * value).clamp_max(1.0)


def _one_row(values: Tensor) -> Csr:
    """Return the pattern of one row that has an edge from each of these values."""
    count, where = len(values), values.device
    return Csr(torch.tensor([0, count], device=where), torch.arange(count, dtype=torch.int32, device=where), count)
