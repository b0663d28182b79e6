"""Softmax attention over a shard's edges, with rows of inner and halo nodes at hand."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import leaky_relu

from isthmus import kernels
from isthmus.kernels import Scores
from isthmus.shard import Shard


def attend(shard: Shard, target: Tensor, source: Tensor, x: Tensor, slope: float) -> Tensor:
    """Return attention-weighted sums of rows; `LocalGraph.attend` describes the arguments."""
    if shard.weighted:
        shard.weights_read = True
        return _attend_weighted(shard, target, source, x, slope)
    return _Attend.apply(target, source, x, shard, slope)


def _attend_weighted(shard: Shard, target: Tensor, source: Tensor, x: Tensor, slope: float) -> Tensor:
    """Return Σ_j α_ij w_ij x_j: every edge's attention times its weight, a node's own row times one.

    It is made of torch's own operations, with H values per edge and H·D for their product in memory.
    """
    pattern, _ = shard.attention_pattern
    to, of, heads = pattern.edge_rows, pattern.indices.long(), target.shape[1]
    assert shard.edge_attr is not None, "a weighted shard has attributes"
    weight = x.new_ones(pattern.num_edges)
    own = torch.zeros(pattern.num_edges, dtype=torch.bool, device=x.device)
    own[pattern.indptr[:-1]] = True
    weight[~own] = shard.edge_attr.reshape(-1).to(x.dtype)
    scores = leaky_relu(target[to] + source[of], slope)
    at = to[:, None].expand(-1, heads)
    top = scores.new_full((shard.num_inner, heads), -torch.inf).scatter_reduce(0, at, scores.detach(), "amax")
    chances = (scores - top[to]).exp()
    chances = chances / chances.new_zeros(top.shape).index_add(0, to, chances)[to]
    rows = (chances * weight[:, None])[:, :, None] * x[of].unflatten(1, (heads, -1))
    return x.new_zeros(shard.num_inner, x.shape[1]).index_add(0, to, rows.flatten(1))


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
