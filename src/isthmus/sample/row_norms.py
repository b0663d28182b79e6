"""How large the rows are that a graph aggregates: what variance-reducing samplers go by.

‖y_ij‖² = P_ij² Σ_l ‖H_j^l W^{l+1}‖² (PSC-GCN eq. 16): one number per node times P_ij. Owners measure it in a forward
pass every few steps, and tell the readers of their boundary rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Links, Transport, Where

SMALLEST = 1e-3  # of the largest: a row that has grown since it was measured must still have a chance


@dataclass
class RowNorms:
    """Known from step ``since`` on; per norm of aggregation Σ_l (source_j ‖H_j^l W^{l+1}‖)², float64 [n] and [h]."""

    since: int
    inner: dict[str, Tensor]
    halo: dict[str, Tensor]
    plans: dict[Any, Any] = field(default_factory=dict)
    """What samplers have derived from these sizes."""


class NormRecorder:
    """Collects the squares of one forward pass."""

    def __init__(self, step: int):
        self.step = step
        self.squares: dict[str, Tensor] = {}

    def look(self, x: Tensor, through: Tensor | None, norm: str, source: Tensor | None) -> None:
        """Rows x [n, F] are aggregated under `norm`, and multiplied by ``through`` [out, F] then."""
        rows = x.detach() if through is None else x.detach().to(through.dtype) @ through.detach().t()
        size = torch.linalg.vector_norm(rows, dim=1, dtype=kernels.sum_dtype(rows.dtype)).double()
        size = (size if source is None else size * source.double()).square()
        self.squares[norm] = self.squares[norm] + size if norm in self.squares else size

    def share(self, links: Links, transport: Transport) -> RowNorms:
        """The sizes of my nodes and, from their owners, of my halo nodes. Every worker calls it at the same time."""
        names = sorted(self.squares)
        if not names:
            return RowNorms(self.step + 1, {}, {})
        mine = torch.stack([self.squares[name] for name in names], dim=1)
        halo = mine.new_empty(links.halo.ptr[-1], len(names))
        leaving = [kernels.gather_rows(mine, rows) for rows in links.send_rows]
        where = Where("sizes of rows", "forward", self.step, "ids")
        transport.exchange(leaving, links.halo.split(halo), where).wait()
        columns = range(len(names))
        return RowNorms(
            self.step + 1,
            {names[k]: mine[:, k].contiguous() for k in columns},
            {names[k]: halo[:, k].contiguous() for k in columns},
        )
