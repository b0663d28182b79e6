"""The sparse pattern (CSR) that the kernels take: the columns of every row; and how its edges are weighed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True)
class Csr:
    """A sparse pattern: row r has the columns ``indices[indptr[r]:indptr[r+1]]``.

    ``targets`` names the row of the result that row r belongs to, for patterns most of whose rows are empty
    (`compact`); None means r itself."""

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
        """Return the same pattern without its empty rows."""
        rows = self.indptr.diff().nonzero().flatten()
        if len(rows) == self.num_rows:
            return self
        indptr = torch.cat([self.indptr[:1], self.indptr[rows + 1]])
        return Csr(indptr, self.indices, self.num_cols, rows.to(torch.int32))

    def take(self, rows: Tensor) -> tuple[Csr, Tensor]:
        """Return some of the rows (int64, in this order), and for each of their edges its number here (int64)."""
        counts = self.indptr.diff()[rows]
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        at = torch.repeat_interleave(self.indptr[rows] - indptr[:-1], counts)
        at = at + torch.arange(len(at), device=at.device)
        return Csr(indptr, self.indices[at], self.num_cols), at

    def after(self, cols: Tensor) -> Csr:
        """Return the same pattern with one more column in front of each row: cols [rows]."""
        where = self.indptr.device
        indptr = self.indptr + torch.arange(self.num_rows + 1, device=where)
        indices = torch.empty(self.num_edges + self.num_rows, dtype=torch.int32, device=where)
        added = torch.zeros(len(indices), dtype=torch.bool, device=where)
        added[indptr[:-1]] = True
        indices[added], indices[~added] = cols.to(torch.int32), self.indices
        return Csr(indptr, indices, self.num_cols)

    def to(self, device: torch.device | str) -> Csr:
        targets = None if self.targets is None else self.targets.to(device)
        return Csr(self.indptr.to(device), self.indices.to(device), self.num_cols, targets)


class Weights(NamedTuple):
    r"""The weights of a sum over a pattern; what is None counts as one.

    .. math:: P = diag(row) \, (A \circ edge + [add\_self] \, I) \, diag(col)"""

    row: Tensor | None = None  # [targets]
    col: Tensor | None = None  # [cols]
    edge: Tensor | None = None  # [edges]
    add_self: bool = False


class Scores(NamedTuple):
    r"""The attention scores of the edges j → i, per head: :math:`leaky(t_i + s_j)`."""

    target: Tensor  # [rows, H]
    source: Tensor  # [cols, H]
    slope: float  # of leaky below zero


class Spans(NamedTuple):
    """Rows to draw from: the edges ``begin[i]`` … ``begin[i] + degree[i] - 1``, and the id that keys row i's draws."""

    begin: Tensor  # int64 [m]
    degree: Tensor  # int64 [m]
    ids: Tensor  # int64 [m]
