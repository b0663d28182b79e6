"""Dense and sparse products with bf16 operands."""

from __future__ import annotations

import pytest
import torch
from products import pairwise
from torch import Tensor
from torch.nn import functional

from isthmus import kernels
from isthmus.kernels import Csr, SparseMatrix, products
from isthmus.kernels.linear import linear
from isthmus.kernels.native import core

ROUNDING = 2.0**-8  # of one value in bf16, relative


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rounded(x: Tensor) -> Tensor:
    """What bf16 keeps of x, in float64."""
    return x.detach().bfloat16().double()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("widths", [(7,), (7, 5), (3, 1, 8)])
def test_products_of_rounded_operands(widths, biased, dtype):
    """Operands are rounded, sums are not, results are rounded once."""
    blocks = [drawn(40, width, seed=k).to(dtype).requires_grad_() for k, width in enumerate(widths)]
    weight = drawn(6, sum(widths), seed=9).requires_grad_()
    bias = drawn(6, seed=10).requires_grad_() if biased else None
    got = kernels.half_product(blocks, weight, bias)
    assert got.dtype == torch.bfloat16
    rows, by = torch.cat([rounded(block) for block in blocks], 1), drawn(40, 6, seed=11).bfloat16()
    want = rows @ rounded(weight).t() + (0 if bias is None else rounded(bias))
    torch.testing.assert_close(got.double(), want, rtol=ROUNDING, atol=1e-5)
    got.backward(by)
    of_rows = rounded(by) @ rounded(weight)
    for block, want_of in zip(blocks, of_rows.split(widths, dim=1), strict=True):
        assert block.grad.dtype == dtype
        torch.testing.assert_close(block.grad.double(), want_of, rtol=ROUNDING, atol=1e-5)
    torch.testing.assert_close(weight.grad.double(), rounded(by).t() @ rows, rtol=ROUNDING, atol=1e-4)
    if bias is not None:
        torch.testing.assert_close(bias.grad.double(), by.double().sum(0), rtol=ROUNDING, atol=1e-5)


def test_gradients_that_nobody_wants_are_not_made():
    x, weight = drawn(5, 3), drawn(2, 3).requires_grad_()
    kernels.half_product((x,), weight).float().sum().backward()
    assert x.grad is None
    assert weight.grad is not None


def test_sparse_rows_times_a_bf16_weight():
    pattern = Csr(torch.tensor([0, 2, 2, 3]), torch.tensor([0, 3, 1], dtype=torch.int32), 4)
    x, weight = SparseMatrix(pattern, torch.tensor([0.5, -2.0, 3.0])), drawn(4, 5).requires_grad_()
    got = x @ weight.bfloat16()
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.double(), x.dense().double() @ rounded(weight), rtol=ROUNDING, atol=1e-6)
    by = drawn(3, 5, seed=1).bfloat16()
    got.backward(by)
    torch.testing.assert_close(weight.grad.double(), x.dense().double().t() @ rounded(by), rtol=ROUNDING, atol=1e-6)


def test_a_processor_that_torch_knows_nothing_of_is_taken_to_be_slow(monkeypatch):
    kernels.bf16_is_fast.cache_clear()
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert not kernels.bf16_is_fast()
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True}, raising=False)
    kernels.bf16_is_fast.cache_clear()
    assert kernels.bf16_is_fast()
    kernels.bf16_is_fast.cache_clear()


@pytest.mark.parametrize(
    ("widths", "out", "biased", "relu", "threads"),
    [
        ((7,), 6, True, False, 1),
        ((7, 5), 6, False, False, 2),
        ((33, 5), 47, True, True, 1),
        ((200,), 128, True, True, 2),
        ((64,), 1, False, True, 3),
    ],
)
def test_products_of_many_rows(widths, out, biased, relu, threads, monkeypatch):
    """From 256 float32 rows on the core computes them, with relu at once: the same numbers, the same gradients."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    blocks = tuple(drawn(1003, width, seed=k).requires_grad_() for k, width in enumerate(widths))
    weight = drawn(out, sum(widths), seed=9).requires_grad_()
    bias = drawn(out, seed=10).requires_grad_() if biased else None
    leaves = [*blocks, weight, *([bias] if bias is not None else [])]
    got, by = linear(blocks, weight, bias, None, relu), drawn(1003, out, seed=11)
    rows = torch.cat([block.detach().double() for block in blocks], dim=1).requires_grad_()
    exact = weight.detach().double().requires_grad_()
    want = rows @ exact.t() + (0 if bias is None else bias.detach().double())
    want = want.clamp_min(0) if relu else want
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-4)
    passed = by.double() * (got > 0) if relu else by.double()
    got_of = torch.autograd.grad(got, leaves, by)
    of_rows, of_weight = passed @ exact, passed.t() @ rows
    for one, want_of in zip(got_of, [*of_rows.split(widths, 1), of_weight, passed.sum(0)], strict=False):
        torch.testing.assert_close(one.double(), want_of, rtol=1e-5, atol=5e-4)


@pytest.mark.parametrize(*pairwise(depth=[5, 256, 700], biased=[False, True], relu=[False, True], threads=[1, 2]))
def test_native_products_and_their_twins_agree(depth, biased, relu, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    x, by = drawn(300, depth), drawn(300, 37, seed=3)
    found = []
    for native in ("1", "0"):
        monkeypatch.setenv("ISTHMUS_NATIVE", native)
        core.cache_clear()
        leaves = [x.clone().requires_grad_(), drawn(37, depth, seed=1).requires_grad_()]
        leaves += [drawn(37, seed=2).requires_grad_()] if biased else []
        out = products.product(leaves[:1], leaves[1], leaves[2] if biased else None, relu)
        found.append([out, *torch.autograd.grad(out, leaves, by)])
    core.cache_clear()
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


@pytest.mark.skipif(not products.suits([drawn(300, 2)], drawn(2, 2), torch.bfloat16), reason="no bf16 products here")
@pytest.mark.parametrize(
    *pairwise(widths=[(5,), (64, 64), (7, 600)], out=[1, 37, 128], relu=[False, True], threads=[1, 2], rows=[300, 513])
)
def test_native_bf16_products_and_torchs_agree(widths, out, relu, threads, rows, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    by, found = drawn(rows, out, seed=3).bfloat16(), []
    for product in (products.product, kernels.half_product):
        blocks = [drawn(rows, width, seed=k).bfloat16().requires_grad_() for k, width in enumerate(widths)]
        bias = drawn(out, seed=9).bfloat16().float()  # torch rounds it
        leaves = [drawn(out, sum(widths), seed=8).requires_grad_(), bias.requires_grad_(), *blocks]
        made = product(blocks, *leaves[:2], relu=relu, half=torch.bfloat16)
        found.append([made, *torch.autograd.grad(made, leaves, by)])
    for one, other in zip(*found, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one.double(), other.double(), rtol=2 * ROUNDING, atol=1e-3)


def test_long_sums_of_products_err_no_more_than_torchs():
    x, weight = drawn(300, 8000).abs(), drawn(16, 8000, seed=1).abs()
    exact = x.double() @ weight.double().t()
    error = (products.product([x], weight).double() / exact - 1).abs().mean()
    assert error <= 3 * (functional.linear(x, weight).double() / exact - 1).abs().mean() + 1e-8
    many, grads = drawn(60_000, 8).abs(), drawn(60_000, 5, seed=4).abs()
    weight = drawn(5, 8, seed=5).requires_grad_()
    products.product([many], weight).backward(grads)
    exact = grads.double().t() @ many.double()
    assert (weight.grad.double() / exact - 1).abs().max() < 2e-6


def test_products_of_input_rows_make_no_gradient_of_them():
    x, weight, bias = drawn(300, 20), drawn(5, 20, seed=1).requires_grad_(), drawn(5, seed=2).requires_grad_()
    out = linear(x, weight, bias, None, relu=True)
    out.sum().backward()  # a gradient whose rows share their memory
    torch.testing.assert_close(bias.grad, (out > 0).sum(0).float())
    torch.testing.assert_close(weight.grad, (out > 0).float().t() @ x, rtol=1e-5, atol=1e-4)


def test_relu_in_the_pass_of_a_bf16_product():
    x, weight, by = drawn(40, 7), drawn(6, 7, seed=1).requires_grad_(), drawn(40, 6, seed=2).bfloat16()
    got = linear(x, weight, None, torch.bfloat16, relu=True)
    assert torch.equal(got, linear(x, weight, None, torch.bfloat16).relu())
    got.backward(by)
    of_weight = (by.double() * (got > 0)).t() @ rounded(x)
    torch.testing.assert_close(weight.grad.double(), of_weight, rtol=ROUNDING, atol=1e-2)
