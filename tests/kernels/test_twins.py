"""Every native loop against its torch twin, over shapes that meet each branch."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from products import pairwise

from isthmus import kernels
from isthmus.kernels import Csr, Scores, Weights, twin
from isthmus.kernels.native import core

needs_core = pytest.mark.skipif(core() is None, reason="the native core was not built: no C++ compiler at install")
pytestmark = needs_core

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-11, torch.bfloat16: 1e-4}
WIDTHS = [1, 3, 7, 8, 9, 16, 17, 41, 47, 64, 65, 100, 128, 130, 200, 256, 602]
FLOATS = [torch.float32, torch.float64, torch.bfloat16]
ROUNDING = {torch.float32: 1e-6, torch.float64: 1e-14, torch.bfloat16: 2.0**-8}


def random_csr(rows: int, cols: int, seed: int = 0, largest: int = 40) -> Csr:
    """Rows of very unequal length, some empty."""
    draw = torch.Generator().manual_seed(seed)
    degree = (torch.rand(rows, generator=draw) ** 4 * largest).long()
    indptr = torch.cat([torch.zeros(1, dtype=torch.long), degree.cumsum(0)])
    indices = torch.randint(cols, (int(indptr[-1]),), generator=draw, dtype=torch.int32)
    return Csr(indptr, indices, cols)


@pytest.mark.parametrize(*pairwise(dtype=FLOATS, width=WIDTHS, scale=["none", "column", "edge", "both"]))
def test_aggregate(dtype, width, scale):
    csr = random_csr(50, 50, seed=width)
    sums = torch.float32 if dtype == torch.bfloat16 else dtype
    x = torch.randn(50, width, dtype=sums).to(dtype)
    col = torch.rand(50, dtype=sums) if scale in ("column", "both") else None
    edge = torch.rand(csr.num_edges, dtype=sums) if scale in ("edge", "both") else None
    row = torch.rand(50, dtype=sums)
    for add_self in (False, True):
        for accumulate in (False, True):
            got, want = torch.ones(50, width, dtype=sums), torch.ones(50, width, dtype=sums)
            weights = Weights(row, col, edge, add_self)
            kernels.aggregate(csr, x, weights, got, accumulate=accumulate)
            twin.aggregate(csr, x, weights, want, accumulate)
            torch.testing.assert_close(got, want, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [1, 17, 128, 200])
@pytest.mark.parametrize("accumulate", [False, True])
def test_sums_that_are_rounded_to_bf16(dtype, width, accumulate):
    """Summed in float32, rounded once: half to even, and what is not a number stays none."""
    csr, x = random_csr(50, 50, seed=width), torch.randn(50, width).to(dtype)
    x[3] = torch.nan
    got, want = torch.ones(50, width, dtype=torch.bfloat16), torch.ones(50, width)
    assert kernels.aggregate(csr, x, out=got, accumulate=accumulate) is got
    kernels.aggregate(csr, x, out=want, accumulate=accumulate)
    torch.testing.assert_close(got, want.bfloat16(), rtol=0, atol=0, equal_nan=True)
    assert got.isnan().any()
    if not accumulate:
        torch.testing.assert_close(kernels.aggregate(csr, x, dtype=torch.bfloat16), got, rtol=0, atol=0, equal_nan=True)
        twin.aggregate(csr, x, Weights(), got, accumulate=False)
        torch.testing.assert_close(got.float(), want, rtol=ROUNDING[torch.bfloat16], atol=1e-2, equal_nan=True)


def test_aggregate_into_some_rows_leaves_the_others():
    csr = random_csr(200, 30).compact()
    assert csr.num_rows < 200
    x, got = torch.randn(30, 24, dtype=torch.float64), torch.full((200, 24), 7.0, dtype=torch.float64)
    want = got.clone()
    kernels.aggregate(csr, x, out=got, accumulate=True)
    twin.aggregate(csr, x, Weights(), want, accumulate=True)
    torch.testing.assert_close(got, want)
    untouched = torch.ones(200, dtype=torch.bool)
    untouched[csr.targets.long()] = False
    assert (got[untouched] == 7).all()


def test_aggregate_reads_a_slice_of_a_wider_matrix():
    csr, wide = random_csr(20, 20), torch.randn(20, 40)
    torch.testing.assert_close(
        kernels.aggregate(csr, wide[:, 8:24]), kernels.aggregate(csr, wide[:, 8:24].contiguous())
    )


def test_sums_do_not_depend_on_the_number_of_threads():
    csr, x = random_csr(3000, 3000, largest=200), torch.randn(3000, 64)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(kernels.aggregate(csr, x))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_empty_patterns():
    empty = Csr(torch.zeros(1, dtype=torch.long), torch.zeros(0, dtype=torch.int32), 5)
    assert kernels.aggregate(empty, torch.randn(5, 8)).shape == (0, 8)
    lonely = Csr(torch.zeros(4, dtype=torch.long), torch.zeros(0, dtype=torch.int32), 3)
    assert (kernels.aggregate(lonely, torch.randn(3, 8)) == 0).all()
    assert kernels.transpose(lonely)[0].num_rows == 3


def test_wrong_dtype_of_a_scale_is_refused():
    with pytest.raises(TypeError, match="float64"):
        kernels.aggregate(random_csr(5, 5), torch.randn(5, 8), Weights(col=torch.rand(5, dtype=torch.float64)))


def test_transpose():
    csr = random_csr(60, 90)
    (got, got_order), (want, want_order) = kernels.transpose(csr), twin.transpose(csr)
    assert torch.equal(got.indptr, want.indptr)
    assert torch.equal(got.indices, want.indices)
    assert torch.equal(got_order, want_order)


@pytest.mark.parametrize("dtype", FLOATS)
def test_gather_rows(dtype):
    x, rows = torch.randn(40, 13).to(dtype), torch.randint(40, (100,), dtype=torch.int32)
    for ids in (rows, rows.long()):
        assert torch.equal(kernels.gather_rows(x, ids), x[rows.long()])
    assert torch.equal(kernels.gather_rows(x[:, 2:7], rows), x[rows.long(), 2:7])


@pytest.mark.parametrize("threads", [1, 3])
def test_gather_rows_past_the_caches_and_rounded(threads):
    x, rows = torch.randn(1000, 100), torch.randint(1000, (50_000,))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert torch.equal(kernels.gather_rows(x, rows), x[rows])  # 20 MB
        for ids in (rows, rows.int()):
            half = kernels.gather_rows(x, ids, torch.empty(len(rows), 100, dtype=torch.bfloat16))
            assert torch.equal(half, x[rows].bfloat16())
    finally:
        torch.set_num_threads(before)
    twin.gather_rows(x, rows, again := torch.empty_like(half))
    assert torch.equal(again, half)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gather_held_leaves_other_places_alone(dtype):
    x, nodes = torch.randn(40, 16), torch.randint(100, (80,))
    nodes[:4] = torch.tensor([29, 30, 69, 70])
    got, want = (torch.full((80, 16), 7.0, dtype=dtype) for _ in range(2))
    others = kernels.gather_held(x, nodes, 30, got)
    assert torch.equal(others, twin.gather_held(x, nodes, 30, want))
    assert torch.equal(got, want)
    assert (got[others] == 7).all()
    assert others[:2].tolist() == [0, 3]
    empty = kernels.gather_held(x[:0], nodes, 30, got)
    assert torch.equal(empty, torch.arange(80))
    assert torch.equal(got, want)


@pytest.mark.parametrize("dtype", FLOATS)
def test_scatter_add_rows(dtype):
    rows = torch.randperm(40)[:25].to(torch.int32)
    values, got = torch.randn(25, 9).to(dtype), torch.randn(40, 9).to(dtype)
    want = got.clone()
    twin.scatter_add_rows(want, rows, values)
    assert torch.equal(kernels.scatter_add_rows(got, rows, values.t().contiguous().t()), want)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("p", [0.0, 0.3, 0.5])
def test_dropout_draws_the_same_bits(dtype, relu, p):
    x, nodes = torch.randn(70, 37).to(dtype), torch.randint(2**40, (70,))
    x[3] = torch.nan
    same = partial(torch.testing.assert_close, rtol=0, atol=0, equal_nan=True)
    before = torch.empty_like(x)
    got = kernels.dropout(x, nodes, 2**63 + 12345, p, relu=relu)
    same(got, twin.dropout(x, nodes, 2**63 + 12345, round(p * 2**32), 1 / (1 - p), relu))
    same(got, kernels.dropout(x, nodes, 2**63 + 12345, p, relu=relu, before=before))
    same(before, torch.relu(x) if relu else x)
    assert got[3].isnan().any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dropout_of_sparse_rows_is_that_of_dense_ones(dtype):
    csr, nodes = random_csr(30, 45), torch.randint(2**40, (30,))
    rows = kernels.SparseMatrix(csr, torch.randn(csr.num_edges, dtype=dtype))
    got = kernels.dropout_stored(csr, rows.values, nodes, 2**63 + 5, 0.4)
    assert torch.equal(got, twin.dropout_stored(csr, rows.values, nodes, 2**63 + 5, round(0.4 * 2**32), 1 / 0.6))
    dense = kernels.dropout(rows.dense(), nodes, 2**63 + 5, 0.4)
    torch.testing.assert_close(rows.dropout(nodes, 2**63 + 5, 0.4).dense(), dense)


def test_what_is_stored_twice_is_summed():
    twice = kernels.Csr(torch.tensor([0, 2, 3]), torch.tensor([1, 1, 0], dtype=torch.int32), 2)
    rows = kernels.SparseMatrix(twice, torch.tensor([1.0, 2.0, 5.0]))
    assert torch.equal(rows.dense(), rows @ torch.eye(2))


def test_values_for_other_rows_are_refused():
    with pytest.raises(ValueError, match="give one for each"):
        kernels.scatter_add_rows(torch.zeros(9, 3), torch.arange(5, dtype=torch.int32), torch.ones(2, 3))


@pytest.mark.parametrize("dtype", FLOATS)
def test_gradients_of_relu_and_dropout(dtype):
    out, grad, before, also = torch.randn(4, 70, 37).to(dtype)
    close = {"rtol": ROUNDING[dtype], "atol": ROUNDING[dtype]}
    torch.testing.assert_close(kernels.kept_positive(out, grad, 1.7), twin.kept_positive(out, grad, 1.7), **close)
    got = kernels.both_positive(out, grad, 1.7, before, also)
    torch.testing.assert_close(got, twin.both_positive(out, grad, 1.7, before, also), **close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dropout_where_it_stands(dtype):
    x, nodes = torch.randn(70, 37, dtype=dtype), torch.arange(70)
    want = kernels.dropout(x, nodes, 7, 0.4)
    assert kernels.dropout(x, nodes, 7, 0.4, out=x) is x
    assert torch.equal(x, want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_where_relu_was_used_twice(dtype):
    """z → relu → dropout, with a gradient at either result."""
    z = torch.randn(70, 37, dtype=dtype, requires_grad=True)
    grad, also = torch.randn(70, 37, dtype=dtype), torch.randn(37, 70, dtype=dtype).t()
    before = torch.relu(z)
    kept = kernels.dropout(torch.ones_like(z), torch.arange(70), 3, 0.4)
    after = before * kept
    (after * grad + before * also).sum().backward()
    got = kernels.both_positive(after.detach(), grad, 1 / 0.6, before.detach(), also)
    torch.testing.assert_close(got, z.grad)


def test_dropout_keeps_the_right_share_everywhere():
    nodes = torch.arange(4000)
    kept = kernels.dropout(torch.ones(4000, 50), nodes, 99, 0.3) > 0
    error = (0.3 * 0.7 / 4000) ** 0.5
    assert abs(kept.double().mean() - 0.7) < 4 * error / 50**0.5
    assert ((kept.double().mean(0) - 0.7).abs() < 5 * error).all()
    other = kernels.dropout(torch.ones(4000, 50), nodes, 100, 0.3) > 0
    assert abs((kept & other).double().mean() - 0.49) < 0.01
    shifted = kept[1:] & kept[:-1]
    assert abs(shifted.double().mean() - 0.49) < 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("heads", "width"), [(1, 1), (1, 16), (4, 8), (3, 7)])
def test_attention(dtype, heads, width):
    csr = random_csr(30, 45)
    scores = Scores(torch.randn(30, heads, dtype=dtype), torch.randn(45, heads, dtype=dtype), 0.2)
    x, grad = torch.randn(45, heads * width, dtype=dtype), torch.randn(30, heads * width, dtype=dtype)
    close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    out, alpha = kernels.attention(csr, scores, x)
    want, want_alpha = twin.attention(csr, scores, x)
    torch.testing.assert_close(out, want, **close)
    torch.testing.assert_close(alpha, want_alpha, **close)
    got = kernels.attention_grad(csr, kernels.transpose(csr), scores, x, alpha, grad)
    for one, other in zip(got, twin.attention_grad(csr, scores, x, want_alpha, grad), strict=True):
        torch.testing.assert_close(one, other, **close)


def test_attention_gradient_is_that_of_autograd():
    csr = random_csr(12, 15)
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((12, 2), (15, 2), (15, 6))]
    target, source, x = inputs
    out, alpha = twin.attention(csr, Scores(target, source, 0.2), x)
    grad = torch.randn_like(out)
    want = torch.autograd.grad(out, inputs, grad)
    scores = Scores(target.detach(), source.detach(), 0.2)
    got = kernels.attention_grad(csr, kernels.transpose(csr), scores, x.detach(), alpha.detach(), grad)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other)
