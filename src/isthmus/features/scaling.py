"""Scale feature rows: by row, by column, or not at all; the same for a worker's own rows and those of other parts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.comm import Transport, Where
from isthmus.kernels import SparseMatrix

Stored = Tensor | SparseMatrix


@dataclass(frozen=True)
class Scaling:
    """A way to scale rows, one by one, so that it does not matter who does it."""

    how: str = "raw"
    mean: Tensor | None = None  # float64 [F], of the columns over all workers' known rows
    deviation: Tensor | None = None  # float64 [F]

    @staticmethod
    def fit(x: Stored, how: str, known: Tensor | slice, transport: Transport) -> Scaling:
        """Return the scaling ``how`` (raw, rows, standard) for all workers' ``known`` rows; all call it at once."""
        if how != "standard":
            return Scaling(how)
        x = x.dense() if isinstance(x, SparseMatrix) else x
        where, rows = Where("features", "reduce", 0, "features"), x[known].double()
        count = transport.all_reduce(torch.tensor([float(len(rows))], dtype=rows.dtype, device=rows.device), where)
        mean = transport.all_reduce(rows.sum(0), where) / count
        square = transport.all_reduce((rows - mean).square().sum(0), where) / count
        return Scaling(how, mean, square.sqrt())

    def apply(self, x: Stored) -> Stored:
        """Return scaled rows; constant columns become 0, and rows whose sum is 0 stay as they are."""
        if self.how == "rows":
            if isinstance(x, SparseMatrix):
                rows = x.pattern.edge_rows
                total = x.values.new_zeros(len(x)).index_add_(0, rows, x.values)
                return SparseMatrix(x.pattern, x.values / _not_zero(total)[rows])
            return x / _not_zero(x.sum(1, keepdim=True))
        if self.mean is None or self.deviation is None:
            return x
        x = x.dense() if isinstance(x, SparseMatrix) else x
        mean, deviation = self.mean.to(x.device), self.deviation.to(x.device)
        return ((x.double() - mean) / _not_zero(deviation)).to(x.dtype)


def _not_zero(total: Tensor) -> Tensor:
    return torch.where(total == 0, torch.ones_like(total), total)
