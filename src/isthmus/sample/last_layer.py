"""Sample the inner neighbours of the rows that the loss reads, so that the layer before computes fewer rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.errors import InputError
from isthmus.kernels import Csr, WaterFilling
from isthmus.sample.noise import quiet_levels
from isthmus.sample.row_norms import SMALLEST, RowNorms
from isthmus.shard.draw_context import DrawContext
from isthmus.shard.drawn import Pattern

_SALT = 0x7A1
FEW_EDGES = 4096  # of a worker: summing all of them takes no longer than drawing some
FEW_NEEDED = 0.25  # share of all rows; more rows than that have nearly all rows as neighbours, even after sampling


@dataclass(frozen=True)
class LastLayer:
    r"""A sampler of inner edges to needed rows: edge (i ← j) is kept with probability p_ij and counts 1/p_ij times.

    .. math:: p_{ij} = \min(1, c_i \|y_j\|), \qquad \sum_j p_{ij} = \max(rate \cdot |N_i|, \min(|N_i|, least))

    with N_i the inner neighbours of i. Until norms of rows are known, p is the same for all of them. All edges of a
    source node share one random number: the variance of Z_i stays the same (the neighbours of i are still independent),
    but row j is needed with probability max_i p_ij instead of 1 − Π_i (1 − p_ij). ``noise``: rate is raised until a
    draw leaves no more of it in the mean of the rows that the loss reads (`sample.noise`), and is 1 for few edges.
    """

    rate: float = 0.1
    least: int = 6
    noise: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise InputError(f"the share of neighbours in the last layer must be between 0 and 1, not {self.rate}")
        if self.least < 0:
            raise InputError(f"least counts neighbours: it must be at least 0, not {self.least}")

    def draw(self, context: DrawContext, inner: Csr, rows: Tensor, step: int, row_norms: RowNorms | None) -> Pattern:
        """Return those of the edges ``inner`` [m, n] to the rows (int64 [m]) that are kept at a step."""
        filling = WaterFilling(*self._levels(context, inner, row_norms), coupled=True)
        key, nodes = kernels.stream(context.seed, step, _SALT), context.whole.nodes
        kept, weight, _ = kernels.draw_weighted(key, inner, filling, (nodes[rows], nodes), dtype=context.dtype)
        return Pattern(kept, weight)

    def _levels(self, context: DrawContext, inner: Csr, row_norms: RowNorms | None) -> tuple[Tensor, Tensor]:
        """Return c [m] and ‖y‖ [n] of the equation above."""
        if row_norms is not None and self in row_norms.plans:
            return row_norms.plans[self]
        value = torch.ones(inner.num_cols, dtype=torch.float64, device=inner.indices.device)
        if row_norms is not None and row_norms.inner:
            value = torch.stack(list(row_norms.inner.values())).sum(0).sqrt()
        (value,) = kernels.floored(value, floor=SMALLEST)
        rate = 1.0 if self.noise and inner.num_edges <= FEW_EDGES else self.rate
        found = quiet_levels([(inner, value)], rate, self.least, self.noise, context), value
        if row_norms is not None:
            row_norms.plans[self] = found
        return found
