"""Sparse feature rows: bag-of-words features are about one percent full, so products with them stay sparse."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.autograd import Function

from isthmus.kernels import ops
from isthmus.kernels.csr import Csr, Weights


@dataclass(frozen=True)
class SparseMatrix:
    """A sparse matrix X [n, F]: ``values`` at the entries of ``pattern``. ``X @ W`` has no gradient by X."""

    pattern: Csr
    values: Tensor  # [nnz]

    @property
    def shape(self) -> tuple[int, int]:
        return self.pattern.num_rows, self.pattern.num_cols

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    @property
    def requires_grad(self) -> bool:
        return False

    def to(self, device: torch.device) -> SparseMatrix:
        return SparseMatrix(self.pattern.to(device), self.values.to(device))

    def __len__(self) -> int:
        return self.pattern.num_rows

    def __matmul__(self, weight: Tensor) -> Tensor:
        """Return X W, [n, K] for weight [F, K], in its dtype; sums are float32 also for a bf16 weight."""
        return _SparseMatmul.apply(weight, self)

    def dense(self) -> Tensor:
        out = self.values.new_zeros(self.shape)
        places = self.pattern.edge_rows, self.pattern.indices.long()
        return out.index_put_(places, self.values, accumulate=True)  # duplicate entries are summed, as in a product

    def take(self, rows: Tensor) -> SparseMatrix:
        """Return some of the rows (int64), in this order."""
        pattern, at = self.pattern.take(rows)
        return SparseMatrix(pattern, self.values[at])

    def dropout(self, nodes: Tensor, stream: int, p: float) -> SparseMatrix:
        """Drop each value with probability p, as a function of (stream, node, feature), as for dense rows."""
        dropped = replace(self, values=ops.dropout_stored(self.pattern, self.values, nodes, stream, p))
        dropped.__dict__["turned"] = self.turned  # the pattern is the same, and so is its transpose
        return dropped

    @cached_property
    def turned(self) -> tuple[Csr, Tensor]:
        return ops.transpose(self.pattern)

    @cached_property
    def turned_values(self) -> Tensor:
        return self.values[self.turned[1]]


class _SparseMatmul(Function):
    @staticmethod
    def forward(ctx, weight, x):
        ctx.x, ctx.dtype = x, weight.dtype
        return ops.aggregate(x.pattern, weight.contiguous(), Weights(edge=x.values), dtype=weight.dtype)

    @staticmethod
    def backward(ctx, grad):
        return ops.aggregate(ctx.x.turned[0], grad, Weights(edge=ctx.x.turned_values), dtype=ctx.dtype), None
