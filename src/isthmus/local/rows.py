"""Gather and scatter distinct rows of a tensor, with gradients."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.autograd import Function

from isthmus import kernels

AsMade = bool | Literal["relu"]  # how a product is wanted: in the weight's dtype, as it was made, or relu of that
FEW = 0.8  # share of all rows; above it, gathering and scattering rows costs what it saves


def gather_rows(x: Tensor, rows: Tensor | None) -> Tensor:
    """Return x[rows], [m, F]; rows int64, distinct; None: x itself."""
    return x if rows is None else _Take.apply(x, rows.to(torch.int32))


def scatter_rows(x: Tensor, rows: Tensor | None, count: int) -> Tensor:
    """Return rows x [m, F] at positions ``rows`` of ``count``, zeros elsewhere: the transpose of `gather_rows`."""
    return x if rows is None else _Place.apply(x, rows.to(torch.int32), count)


class _Take(Function):
    @staticmethod
    def forward(ctx, x, rows):
        ctx.rows, ctx.count = rows, len(x)
        return kernels.gather_rows(x, rows)

    @staticmethod
    def backward(ctx, grad):
        return kernels.scatter_add_rows(grad.new_zeros(ctx.count, grad.shape[1]), ctx.rows, grad), None


class _Place(Function):
    @staticmethod
    def forward(ctx, x, rows, count):
        ctx.rows = rows
        return kernels.scatter_add_rows(x.new_zeros(count, x.shape[1]), rows, x)

    @staticmethod
    def backward(ctx, grad):
        return kernels.gather_rows(grad, ctx.rows), None, None
