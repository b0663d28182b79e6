"""Norms of the rows that a graph aggregates, by which variance-reducing samplers choose.

‖y_ij‖² = P_ij² Σ_l ‖H_j^l W^{l+1}‖² (PSC-GCN eq. 16): one number per node times P_ij. Owners measure it in a forward
pass every few steps, and tell the readers of their boundary rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import FORWARD, Links, Transport, Where

SMALLEST = 1e-3  # share of the largest norm: a row that has grown since it was measured must still have a chance


@dataclass
class RowNorms:
    """Squared norms of rows, Σ_l (source_j ‖H_j^l W^{l+1}‖)² per aggregation norm, known from step ``since`` on."""

    since: int
    inner: dict[str, Tensor]  # float64 [n], by norm of aggregation
    halo: dict[str, Tensor]  # float64 [h]
    plans: dict[Any, Any] = field(default_factory=dict)
    """The plans that samplers have derived from these norms, by sampler."""


class NormRecorder:
    """A recorder of the squared norms of rows in one forward pass."""

    def __init__(self, step: int):
        self.step = step
        self.squares: dict[str, Tensor] = {}

    def record(self, x: Tensor, through: Tensor | None, norm: str, source: Tensor | None) -> None:
        """Add the norms of rows x [n, F] that are aggregated under `norm`, then multiplied by ``through`` [out, F]."""
        rows = x.detach() if through is None else x.detach().to(through.dtype) @ through.detach().t()
        size = torch.linalg.vector_norm(rows, dim=1, dtype=kernels.sum_dtype(rows.dtype)).double()
        size = (size if source is None else size * source.double()).square()
        self.squares[norm] = self.squares[norm] + size if norm in self.squares else size

    def share(self, links: Links, transport: Transport) -> RowNorms:
        """Return the norms of my rows and, from their owners, of my halo rows; every worker calls it at once."""
        names = sorted(self.squares)
        if not names:
            return RowNorms(self.step + 1, {}, {})
        mine = torch.stack([self.squares[name] for name in names], dim=1)
        halo = links.pull(mine, transport, Where("norms of rows", FORWARD, self.step, "ids"))
        columns = range(len(names))
        return RowNorms(
            self.step + 1,
            {names[k]: mine[:, k].contiguous() for k in columns},
            {names[k]: halo[:, k].contiguous() for k in columns},
        )
