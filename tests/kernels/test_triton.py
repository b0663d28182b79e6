"""The Triton kernels in Triton's interpreter, against their torch twins."""

from __future__ import annotations

import pytest
import torch
from products import pairwise

from isthmus.kernels import Csr, Scores, Weights, on_triton, twin

pytest.importorskip("triton", reason="triton is not installed: pip install triton (torch for CUDA brings it along)")

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-11, torch.bfloat16: 2.0**-6}
FLOATS = [torch.float32, torch.float64, torch.bfloat16]
WIDTHS = [1, 2, 3, 16, 41, 64, 100, 127, 128, 129, 200, 256, 300]
OFFSETS = [torch.int32, torch.int64]


def pattern(rows: int, cols: int, offsets: torch.dtype, seed: int = 0) -> Csr:
    """Empty rows, short ones, and a hub that has more edges than there are columns."""
    draw = torch.Generator().manual_seed(seed)
    degree = torch.randint(0, 5, (rows,), generator=draw)
    degree[0], degree[1], degree[-1] = 3 * cols + 1, 0, 0
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    return Csr(indptr.to(offsets), torch.randint(cols, (int(indptr[-1]),), generator=draw, dtype=torch.int32), cols)


def close(got, want, dtype):
    torch.testing.assert_close(got.double(), want.double(), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize(
    *pairwise(dtype=FLOATS, width=WIDTHS, offsets=OFFSETS, scale=["none", "column", "edge", "both"], more=[False, True])
)
def test_aggregate_and_its_transpose(dtype, width, offsets, scale, more):
    csr, sums = pattern(9, 9, offsets, width), torch.float32 if dtype == torch.bfloat16 else dtype
    x = torch.randn(9, width, dtype=sums).to(dtype)
    col = torch.rand(9, dtype=sums) if scale in ("column", "both") else None
    edge = torch.rand(csr.num_edges, dtype=sums) if scale in ("edge", "both") else None
    turned, order = twin.transpose(Csr(csr.indptr.long(), csr.indices, csr.num_cols))
    back = Csr(turned.indptr.to(offsets), turned.indices, turned.num_cols)
    for edges, weight in ((csr, edge), (back, None if edge is None else edge[order])):
        weights = Weights(torch.rand(9, dtype=sums), col, weight, add_self=more)
        got, want = torch.ones(9, width, dtype=sums), torch.ones(9, width, dtype=sums)
        on_triton.aggregate(edges, x, weights, got, accumulate=more)
        twin.aggregate(edges, x, weights, want, accumulate=more)
        close(got, want, dtype)


def test_rows_that_belong_elsewhere_and_strided_ones():
    csr = pattern(9, 7, torch.int64).compact()
    x = torch.randn(7, 12)[:, :5]
    got, want = torch.zeros(9, 5), torch.zeros(9, 5)
    row = torch.rand(9)
    on_triton.aggregate(csr, x, Weights(row=row), got, accumulate=True)
    twin.aggregate(csr, x, Weights(row=row), want, accumulate=True)
    close(got, want, torch.float32)


def test_sums_are_the_same_bits_again():
    csr, x = pattern(9, 9, torch.int64), torch.randn(9, 33)
    one, other = torch.empty(9, 33), torch.empty(9, 33)
    for out in (one, other):
        on_triton.aggregate(csr, x, Weights(), out, accumulate=False)
    assert torch.equal(one, other)


def test_nothing_at_all():
    empty = Csr(torch.zeros(1, dtype=torch.int64), torch.empty(0, dtype=torch.int32), 3)
    on_triton.aggregate(empty, torch.ones(3, 4), Weights(), torch.empty(0, 4), accumulate=False)
    out, alpha = on_triton.attention(empty, Scores(torch.empty(0, 2), torch.ones(3, 2), 0.2), torch.ones(3, 4))
    assert (out.shape, alpha.shape) == ((0, 4), (0, 2))


@pytest.mark.parametrize(*pairwise(dtype=FLOATS, width=[1, 3, 16, 65, 150], heads=[1, 2, 3], offsets=OFFSETS))
def test_edge_softmax_and_its_gradients(dtype, width, heads, offsets):
    csr, sums = pattern(7, 8, offsets, width), torch.float32 if dtype == torch.bfloat16 else dtype
    wide = Csr(csr.indptr.long(), csr.indices, csr.num_cols)
    scores = Scores(torch.randn(7, heads, dtype=sums).to(dtype), torch.randn(8, heads, dtype=sums).to(dtype), 0.2)
    x, grad = (torch.randn(rows, heads * width, dtype=sums).to(dtype) for rows in (8, 7))
    back, order = twin.transpose(wide)
    got, alpha = on_triton.attention(csr, scores, x)
    exact = Scores(scores.target.to(sums), scores.source.to(sums), 0.2)  # bf16 is summed in float32
    want, weights = twin.attention(wide, exact, x.to(sums))
    close(got, want, dtype)
    close(alpha, weights, dtype)
    turned = Csr(back.indptr.to(offsets), back.indices, back.num_cols), order
    found = on_triton.attention_grad(csr, turned, scores, x, alpha, grad)
    twins_found = twin.attention_grad(wide, exact, x.to(sums), alpha.to(sums), grad.to(sums))
    for mine, twins in zip(found, twins_found, strict=True):
        scale = max(1.0, float(twins.abs().max()))
        close(mine / scale, twins / scale, dtype)
