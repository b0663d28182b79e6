"""Dropout whose masks are functions of (seed, step, call, node, feature), so that owners and readers can redraw them.

A mask is the same for any number of workers, and the same at the owner and at every reader of a row.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from isthmus import kernels


class Mask(NamedTuple):
    """The masks of one dropout of a model, for all steps."""

    seed: int
    call: int
    p: float

    def stream(self, step: int) -> int:
        """Return the stream of random numbers of a step."""
        return kernels.stream(self.seed, step, self.call)

    def drop(self, rows: Tensor, nodes: Tensor, step: int, out: Tensor | None = None) -> Tensor:
        """Return rows [m, F] of the given nodes (int64 [m]) after dropout by a step's mask, without a gradient."""
        return kernels.dropout(rows, nodes, self.stream(step), self.p, out=out)


class Dropped(NamedTuple):
    """Rows before dropout, with the mask that was applied: all that another reader needs to apply it."""

    before: Tensor
    mask: Mask


class Before(NamedTuple):
    """The rows that went into a dropout, for those who need to know a few of them before it."""

    x: Tensor
    mask: Mask
    relu: bool

    def rows(self, at: Tensor) -> Tensor:
        """Return some of the rows (int64), after relu if that comes first."""
        rows = self.x.detach()[at]
        return rows.relu_() if self.relu else rows


class Late(NamedTuple):
    """Rows S before dropout, sent with their mask so that readers can apply dropout for the step that uses them.

    Where X = D(S) Wᵀ is narrower than S, the owner sends X instead, with the mask of the step that will read it.
    """

    rows: Tensor  # S [n, G]
    mask: Mask
    weight: Tensor | None = None  # W [F, G]

    def dropped(self, at: Tensor, nodes: Tensor, step: int) -> Tensor:
        """Return D(S) for the rows ``at``, which belong to these nodes, in the weight's dtype."""
        assert self.weight is not None, "only narrow rows are made by their owner"
        return self.mask.drop(self.rows[at].to(self.weight.dtype), nodes, step)


def dropout(x: Tensor, nodes: Tensor, stream: int, p: float, relu: bool) -> Tensor:
    """Return rows after dropout (after relu, if asked)."""
    if p == 0:
        return torch.relu(x) if relu else x
    return (_ReluDropout if relu else _Dropout).apply(x, nodes, stream, p)


def dropout_both(x: Tensor, nodes: Tensor, stream: int, p: float, relu: bool) -> tuple[Tensor, Tensor]:
    """Return the rows after dropout, and before it (but after relu, if asked)."""
    return _ReluDropoutBoth.apply(x, nodes, stream, p) if relu else (_Dropout.apply(x, nodes, stream, p), x)


class _Dropout(Function):
    """Dropout that draws its mask again for the gradient instead of keeping it."""

    @staticmethod
    def forward(ctx, x, nodes, stream, p):
        ctx.nodes, ctx.stream, ctx.p = nodes, stream, p
        return kernels.dropout(x, nodes, stream, p)

    @staticmethod
    def backward(ctx, grad):
        return kernels.dropout(grad, ctx.nodes, ctx.stream, ctx.p), None, None, None


class _ReluDropout(Function):
    """Relu and dropout; the gradient reads from the result which values passed, so nothing more is stored."""

    @staticmethod
    def forward(ctx, x, nodes, stream, p):
        ctx.scale = 1.0 / (1.0 - p)
        out = kernels.dropout(x, nodes, stream, p, relu=True)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        (out,) = ctx.saved_tensors
        return kernels.kept_positive(out, grad, ctx.scale), None, None, None


class _ReluDropoutBoth(Function):
    """Relu and dropout that also returns relu's own result, which has a gradient of its own."""

    @staticmethod
    def forward(ctx, x, nodes, stream, p):
        ctx.set_materialize_grads(False)
        ctx.scale = 1.0 / (1.0 - p)
        before = torch.empty_like(x, memory_format=torch.contiguous_format)
        after = kernels.dropout(x, nodes, stream, p, relu=True, before=before)
        ctx.save_for_backward(after, before)
        return after, before

    @staticmethod
    def backward(ctx, grad, also):
        after, before = ctx.saved_tensors
        if grad is None and also is None:
            return None, None, None, None
        if grad is None:  # one of the two results was not used
            grad = kernels.kept_positive(before, also, 1.0)
        elif also is None:
            grad = kernels.kept_positive(after, grad, ctx.scale)
        else:
            grad = kernels.both_positive(after, grad, ctx.scale, before, also)
        return grad, None, None, None
