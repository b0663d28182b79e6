"""Softmax attention over a shard's edges, with rows of inner and halo nodes at hand."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import Function

from isthmus import kernels
from isthmus.kernels import Csr, Scores, Weights
from isthmus.shard import Shard


def attend(shard: Shard, target: Tensor, source: Tensor, x: Tensor, slope: float) -> Tensor:
    """Return attention-weighted sums of rows; `LocalGraph.attend` describes the arguments.

    Where edges have weights, every edge's attention is multiplied by its weight, that of a node's own row by one.
    """
    shard.weights_read |= shard.weighted
    return _Attend.apply(target, source, x, shard, slope)


class _Attend(Function):
    @staticmethod
    def forward(ctx, target, source, x, shard, slope):
        pattern, _ = shard.attention_pattern
        out, alpha = kernels.attention(pattern, Scores(target, source, slope), x)
        ctx.shard, ctx.slope = shard, slope
        if shard.attention_weight is None:
            ctx.save_for_backward(target, source, x, alpha)
            return out
        out = sum_by_heads(pattern, alpha * shard.attention_weight.to(alpha.dtype)[:, None], x)
        ctx.save_for_backward(target, source, x, alpha, out)
        return out

    @staticmethod
    def backward(ctx, grad):
        target, source, x, alpha, *out = ctx.saved_tensors
        (pattern, turned), weight = ctx.shard.attention_pattern, ctx.shard.attention_weight
        scores = Scores(target, source, ctx.slope)
        if weight is None:
            return *kernels.attention_grad(pattern, turned, scores, x, alpha, grad), None, None
        weighted = Weighted(pattern, turned, scores, alpha, weight.to(alpha.dtype)[:, None])
        return *weighted.gradients(x, out[0], grad), None, None


def sum_by_heads(pattern: Csr, alpha: Tensor, x: Tensor) -> Tensor:
    """Return Σ_j α_ij x_j per head, [rows, H·D], for coefficients α [edges, H] and rows x [cols, H·D]."""
    heads, out = alpha.shape[1], x.new_empty(pattern.num_rows, x.shape[1])
    for h, (rows, sums) in enumerate(zip(x.chunk(heads, 1), out.chunk(heads, 1), strict=True)):
        kernels.aggregate(pattern, rows, Weights(edge=alpha[:, h].contiguous()), sums)
    return out


class Weighted:
    """Attention whose every edge is multiplied by a weight besides: out_i = Σ_j α_ij w_ij x_j."""

    def __init__(self, pattern: Csr, turned: tuple[Csr, Tensor], scores: Scores, alpha: Tensor, weight: Tensor):
        """``turned`` is ``transpose(pattern)``; alpha [edges, H], weight [edges, 1]."""
        self.pattern, self.turned, self.scores, self.alpha, self.weight = pattern, turned, scores, alpha, weight

    def gradients(self, x: Tensor, out: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return those by (target, source, x): of α_ij, w_ij <grad_i, x_j>; of scores, by the softmax's rule."""
        rows, cols, heads = self.pattern.edge_rows, self.pattern.indices.long(), self.alpha.shape[1]
        blocks = zip(grad.chunk(heads, 1), x.chunk(heads, 1), strict=True)
        along = torch.stack([(g[rows] * of[cols]).sum(1) for g, of in blocks], 1)
        mean = (grad * out).unflatten(1, (heads, -1)).sum(-1)
        steep = leaky_slope(self.scores.target[rows] + self.scores.source[cols], self.scores.slope)
        of_score = self.alpha * (self.weight * along - mean[rows]) * steep
        back, order = self.turned
        of_x = sum_by_heads(back, (self.alpha * self.weight)[order], grad)
        of_target = torch.zeros_like(self.scores.target).index_add_(0, rows, of_score)
        return of_target, torch.zeros_like(self.scores.source).index_add_(0, cols, of_score), of_x


def leaky_slope(score: Tensor, slope: float) -> Tensor:
    """Return the derivative of the leaky function of scores."""
    return torch.where(score > 0, torch.ones_like(score), torch.full_like(score, slope))
