"""Softmax attention over a shard's edges, with rows of inner and halo nodes at hand."""

from __future__ import annotations

from torch import Tensor
from torch.autograd import Function

from isthmus import kernels
from isthmus.kernels import Scores
from isthmus.shard import Shard


def attend(shard: Shard, target: Tensor, source: Tensor, x: Tensor, slope: float) -> Tensor:
    """Return attention-weighted sums of rows; `LocalGraph.attend` describes the arguments."""
    return _Attend.apply(target, source, x, shard, slope)


class _Attend(Function):
    @staticmethod
    def forward(ctx, target, source, x, shard, slope):
        pattern, _ = shard.attention_pattern
        out, alpha = kernels.attention(pattern, Scores(target, source, slope), x)
        ctx.shard, ctx.slope = shard, slope
        ctx.save_for_backward(target, source, x, alpha)
        return out

    @staticmethod
    def backward(ctx, grad):
        target, source, x, alpha = ctx.saved_tensors
        pattern, turned = ctx.shard.attention_pattern
        scores = Scores(target, source, ctx.slope)
        return *kernels.attention_grad(pattern, turned, scores, x, alpha, grad), None, None
