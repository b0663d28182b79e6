"""A sparse pattern as the kernels take it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Csr:
    """Row r has the columns ``indices[indptr[r]:indptr[r+1]]``.

    ``targets`` names the row of the result that row r belongs to, for patterns most of whose rows are empty
    (`compact`); None means r itself.
    """

    indptr: Tensor  # int64 [rows + 1]
    indices: Tensor  # int32 [edges]
    num_cols: int
    targets: Tensor | None = None  # int32 [rows]

    @property
    def num_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        return len(self.indices)

    @property
    def edge_rows(self) -> Tensor:
        """The row of every edge, int64 [edges]."""
        return torch.repeat_interleave(torch.arange(self.num_rows, device=self.indptr.device), self.indptr.diff())

    def compact(self) -> Csr:
        """The same pattern without its empty rows."""
        rows = self.indptr.diff().nonzero().flatten()
        if len(rows) == self.num_rows:
            return self
        indptr = torch.cat([self.indptr[:1], self.indptr[rows + 1]])
        return Csr(indptr, self.indices, self.num_cols, rows.to(torch.int32))

    def to(self, device: torch.device | str) -> Csr:
        targets = None if self.targets is None else self.targets.to(device)
        return Csr(self.indptr.to(device), self.indices.to(device), self.num_cols, targets)
