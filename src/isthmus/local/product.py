"""Products of a shard's edges with rows that are already here, as autograd Functions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import Function

from isthmus.shard import Norm, Shard

AsRows = Callable[[Tensor], Tensor]  # converts rows to the dtype in which they are read


def inner_product(x: Tensor, shard: Shard, norm: Norm, as_rows: AsRows) -> Tensor:
    """Return P_inner X alone, [n, F], in memory of its own."""
    return _Inner.apply(x, shard, norm, as_rows)


def whole_product(x: Tensor, halo: Tensor, shard: Shard, norm: Norm, as_rows: AsRows) -> Tensor:
    """Return P_inner X + P_halo X_halo, [n, F], from inner rows [n, F] and halo rows [h, F]."""
    return _Whole.apply(x, halo, shard, norm, as_rows)


def both_products(x: Tensor, shard: Shard, norm: Norm, as_rows: AsRows, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the first n rows of X where they are, [n, F], and P_inner X, [n, F], in a dtype."""
    return _Both.apply(x, shard, norm, as_rows, dtype)


class _Inner(Function):
    @staticmethod
    def forward(ctx, x, shard, norm, as_rows):
        ctx.shard, ctx.norm, ctx.as_rows = shard, norm, as_rows
        return shard.aggregate_inner(as_rows(x), norm, x.dtype)

    @staticmethod
    def backward(ctx, grad):
        return ctx.shard.spread_inner(ctx.as_rows(grad), ctx.norm, grad.dtype), None, None, None


class _Both(Function):
    @staticmethod
    def forward(ctx, x, shard, norm, as_rows, dtype):
        ctx.shard, ctx.norm, ctx.as_rows, ctx.dtype = shard, norm, as_rows, x.dtype
        return x[: shard.num_inner], shard.aggregate_inner(as_rows(x), norm, dtype)

    @staticmethod
    def backward(ctx, own, neighbours):
        out = ctx.shard.spread_inner(ctx.as_rows(neighbours), ctx.norm, ctx.dtype)
        out[: len(own)] += own
        return out, None, None, None, None


class _Whole(Function):
    @staticmethod
    def forward(ctx, x, halo, shard, norm, as_rows):
        ctx.shard, ctx.norm, ctx.as_rows = shard, norm, as_rows
        out = shard.aggregate_inner(as_rows(x), norm, x.dtype)
        shard.aggregate_halo(as_rows(halo), norm, out)
        return out

    @staticmethod
    def backward(ctx, grad):
        rows, halo = ctx.as_rows(grad), grad.new_empty(ctx.shard.num_halo, grad.shape[1])
        ctx.shard.spread_halo(rows, ctx.norm, halo)
        return ctx.shard.spread_inner(rows, ctx.norm, grad.dtype), halo, None, None, None
