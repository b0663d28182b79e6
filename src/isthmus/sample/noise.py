r"""The noise of a draw, and the rate that keeps it small.

A drawn sum scatters around the whole one with relative variance V. A loss reads m rows, whose draws are nearly
independent, so that :math:`\sqrt{V/m}` of noise is left in their mean: next to nothing where a loss reads thousands of
rows, several per cent where it reads sixty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.kernels import Csr, WaterFilling, Weights
from isthmus.sample.row_norms import RowNorms
from isthmus.shard.draw_context import DrawContext

_STEP = 1.25  # between two rates that are tried
Sides = Sequence[tuple[Csr, Tensor]]


def quiet_rate(rate: float, noise: float, context: DrawContext, variance: Callable[[float], float]) -> float:
    """Return the first of rate, 1.25 rate, … 1 at which a draw leaves no more than that noise; 0 is no limit.

    ``variance``: the relative variance of a row by the rate.
    """
    most = noise**2 * context.rows_read
    while noise and 0 < rate < 1 and variance(rate) > most:
        rate = min(1.0, _STEP * rate)
    return rate


def quiet_levels(sides: Sides, rate: float, least: int, noise: float, context: DrawContext) -> Tensor:
    """Return the levels (`WaterFilling`) at which every row reads a share ``rate`` of its neighbours, or ``least``.

    ``sides``: the neighbours of the same rows in one or two patterns, and the value of each column.
    """
    (inner, value), (halo, halo_value) = sides if len(sides) == 2 else (sides[0], (None, None))
    count = torch.stack([csr.indptr.diff() for csr, _ in sides]).sum(0).double()

    def levels(rate: float) -> Tensor:
        budget = torch.maximum(rate * count, count.clamp_max(least))
        return kernels.fill_levels(inner, halo, value, halo_value, budget)

    return levels(quiet_rate(rate, noise, context, lambda rate: _variance(sides, levels(rate))))


def _variance(sides: Sides, level: Tensor) -> float:
    """Return the mean over rows of Σ_j (1/p_ij − 1) value_j², relative to (Σ_j value_j)²."""
    left, total = (torch.zeros(len(level), 1, dtype=level.dtype, device=level.device) for _ in range(2))
    for csr, value in sides:
        p = kernels.edge_probability(csr, WaterFilling(level, value))
        left += kernels.aggregate(csr, value.square()[:, None], Weights(edge=1 / p - 1))
        total += kernels.aggregate(csr, value[:, None])
    read = total > 0
    return float((left[read] / total[read].square()).mean()) if read.any() else 0.0


def size_of_sums(context: DrawContext, row_norms: RowNorms) -> float:
    """Return Σ_i (Σ_j P_ij ‖y_j‖)² over this worker's rows: what variances are relative to."""
    whole, total = context.whole, 0.0
    for name, inner in row_norms.inner.items():
        norm = whole.norm(name, torch.float64)
        sums = kernels.aggregate(whole.inner, inner.sqrt()[:, None])
        sums += kernels.aggregate(whole.halo, row_norms.halo[name].sqrt()[:, None])
        if norm.add_self:
            sums += inner.sqrt()[:, None]
        total += float((sums if norm.target is None else sums * norm.target[:, None]).square().sum())
    return total
