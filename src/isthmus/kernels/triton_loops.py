"""The Triton kernels that `on_triton` launches: each program has one row (and head) of a pattern.

Arguments that belong together come as tuples; None stands for what is not given, which Triton knows when it compiles.
"""

from __future__ import annotations

import triton
import triton.language as tl

EDGES = tl.constexpr(16)  # edges of a row whose columns are loaded at a time


@triton.jit
def aggregate(pattern, rows, scales, sums, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Sum the weighted columns of a row: `ops.aggregate`."""
    indptr, indices, targets = pattern
    x, x_stride, own_row = rows
    edge, col, row = scales
    out, out_stride, before, width = sums
    r = tl.program_id(0).to(tl.int64)
    features = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = features < width
    begin, end = tl.load(indptr + r).to(tl.int64), tl.load(indptr + r + 1).to(tl.int64)
    total = tl.zeros([BLOCK], dtype=WIDE)
    if own_row is not None:
        own = tl.load(own_row + r * x_stride + features, mask=inside, other=0.0).to(WIDE)
        if col is not None:
            own = own * tl.load(col + r).to(WIDE)
        total += own
    for first in range(begin, end, EDGES):
        edges = first + tl.arange(0, EDGES)
        here = edges < end
        cols = tl.load(indices + edges, mask=here, other=0).to(tl.int64)
        both = here[:, None] & inside[None, :]
        values = tl.load(x + cols[:, None] * x_stride + features[None, :], mask=both, other=0.0).to(WIDE)
        if edge is not None:
            values = values * tl.load(edge + edges, mask=here, other=0.0).to(WIDE)[:, None]
        if col is not None:
            values = values * tl.load(col + cols, mask=here, other=0.0).to(WIDE)[:, None]
        total += tl.sum(values, axis=0)
    place = r
    if targets is not None:
        place = tl.load(targets + r).to(tl.int64)
    if row is not None:
        total = total * tl.load(row + place).to(WIDE)
    at = place * out_stride + features
    if before is not None:
        total += tl.load(before + at, mask=inside, other=0.0).to(WIDE)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _scores(indices, scores, r, h, edges, here, WIDE: tl.constexpr):
    """Return leaky(t_i + s_j) of some edges of row r, and whether the sum was above zero."""
    target, source, slope, heads = scores
    cols = tl.load(indices + edges, mask=here, other=0).to(tl.int64)
    score = tl.load(target + r * heads + h).to(WIDE) + tl.load(source + cols * heads + h, mask=here, other=0.0).to(WIDE)
    return tl.where(score > 0, score, score * slope), score > 0


@triton.jit
def softmax(pattern, scores, alpha, WIDE: tl.constexpr):
    """Write the attention weights of a row's edges for one head."""
    indptr, indices = pattern
    heads = scores[3]
    r, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    begin, end = tl.load(indptr + r).to(tl.int64), tl.load(indptr + r + 1).to(tl.int64)
    largest = tl.full([EDGES], float("-inf"), dtype=WIDE)
    for first in range(begin, end, EDGES):
        edges = first + tl.arange(0, EDGES)
        score, _ = _scores(indices, scores, r, h, edges, edges < end, WIDE)
        largest = tl.maximum(largest, tl.where(edges < end, score, float("-inf")))
    most = tl.max(largest, axis=0)
    total = tl.zeros([EDGES], dtype=WIDE)
    for first in range(begin, end, EDGES):
        edges = first + tl.arange(0, EDGES)
        score, _ = _scores(indices, scores, r, h, edges, edges < end, WIDE)
        total += tl.where(edges < end, tl.exp(score - most), 0.0)
    whole = tl.sum(total, axis=0)
    for first in range(begin, end, EDGES):
        edges = first + tl.arange(0, EDGES)
        score, _ = _scores(indices, scores, r, h, edges, edges < end, WIDE)
        weight = tl.exp(score - most) / whole
        tl.store(alpha + edges * heads + h, weight.to(alpha.dtype.element_ty), mask=edges < end)


@triton.jit
def attend(pattern, alpha, x, out, size, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Sum a row's columns by their attention weights, for one head; ``order``: the edges' numbers in alpha."""
    indptr, indices, order = pattern
    heads, width = size
    r, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    features = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    inside = features < width
    begin, end = tl.load(indptr + r).to(tl.int64), tl.load(indptr + r + 1).to(tl.int64)
    total = tl.zeros([BLOCK], dtype=WIDE)
    for first in range(begin, end, EDGES):
        edges = first + tl.arange(0, EDGES)
        here = edges < end
        cols = tl.load(indices + edges, mask=here, other=0).to(tl.int64)
        numbers = edges
        if order is not None:
            numbers = tl.load(order + edges, mask=here, other=0).to(tl.int64)
        weight = tl.load(alpha + numbers * heads + h, mask=here, other=0.0).to(WIDE)
        at = x + (cols[:, None] * heads + h) * width + features[None, :]
        values = tl.load(at, mask=here[:, None] & inside[None, :], other=0.0).to(WIDE)
        total += tl.sum(values * weight[:, None], axis=0)
    tl.store(out + (r * heads + h) * width + features, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def score_grad(pattern, scores, rows, alpha, out, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Write the gradients of a row's scores, α (∂α − Σ α ∂α) leaky', for one head; their sum is that of the target."""
    indptr, indices = pattern
    _, _, slope, heads = scores
    x, grad, width = rows
    of_score, of_target = out
    r, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    begin, end = tl.load(indptr + r).to(tl.int64), tl.load(indptr + r + 1).to(tl.int64)
    mean = tl.zeros([EDGES], dtype=WIDE)
    for first in range(begin, end, EDGES):
        edges = first + tl.arange(0, EDGES)
        here = edges < end
        cols = tl.load(indices + edges, mask=here, other=0).to(tl.int64)
        of_alpha = tl.zeros([EDGES], dtype=WIDE)
        for piece in range(0, width, BLOCK):
            features = piece + tl.arange(0, BLOCK)
            inside = features < width
            came = tl.load(grad + (r * heads + h) * width + features, mask=inside, other=0.0).to(WIDE)
            at = x + (cols[:, None] * heads + h) * width + features[None, :]
            values = tl.load(at, mask=here[:, None] & inside[None, :], other=0.0).to(WIDE)
            of_alpha += tl.sum(values * came[None, :], axis=1)
        weight = tl.load(alpha + edges * heads + h, mask=here, other=0.0).to(WIDE)
        mean += weight * of_alpha
        tl.store(of_score + edges * heads + h, of_alpha.to(of_score.dtype.element_ty), mask=here)
    average = tl.sum(mean, axis=0)
    total = tl.zeros([EDGES], dtype=WIDE)
    for first in range(begin, end, EDGES):
        edges = first + tl.arange(0, EDGES)
        here = edges < end
        _, above = _scores(indices, scores, r, h, edges, here, WIDE)
        weight = tl.load(alpha + edges * heads + h, mask=here, other=0.0).to(WIDE)
        of_alpha = tl.load(of_score + edges * heads + h, mask=here, other=0.0).to(WIDE)
        made = weight * (of_alpha - average)
        made = tl.where(above, made, made * slope)
        tl.store(of_score + edges * heads + h, made.to(of_score.dtype.element_ty), mask=here)
        total += tl.where(here, made, 0.0)
    tl.store(of_target + r * heads + h, tl.sum(total, axis=0).to(of_target.dtype.element_ty))


@triton.jit
def sum_scores(indptr, order, of_score, out, heads, WIDE: tl.constexpr):
    """Sum the gradients of the scores of a source's edges, for one head."""
    r, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    begin, end = tl.load(indptr + r).to(tl.int64), tl.load(indptr + r + 1).to(tl.int64)
    total = tl.zeros([EDGES], dtype=WIDE)
    for first in range(begin, end, EDGES):
        edges = first + tl.arange(0, EDGES)
        numbers = tl.load(order + edges, mask=edges < end, other=0).to(tl.int64)
        total += tl.load(of_score + numbers * heads + h, mask=edges < end, other=0.0).to(WIDE)
    tl.store(out + r * heads + h, tl.sum(total, axis=0).to(out.dtype.element_ty))
