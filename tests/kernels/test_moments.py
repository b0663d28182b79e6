"""Sums down the columns: the native loops against their twins, and digits that must not be lost."""

from __future__ import annotations

import pytest
import torch
from products import pairwise

from isthmus import kernels
from isthmus.kernels import twin
from isthmus.kernels.native import core

pytestmark = pytest.mark.skipif(core() is None, reason="the native core was not built: no C++ compiler at install")
CLOSE = {torch.float32: 2e-4, torch.float64: 1e-10}


@pytest.mark.parametrize(*pairwise(dtype=list(CLOSE), width=[1, 5, 16, 130], rows=[0, 1, 63, 64, 65, 4096, 9000]))
def test_native_and_twin_agree(dtype, width, rows):
    draw = torch.Generator().manual_seed(rows + width)
    x, grad = (torch.randn(rows, width, dtype=dtype, generator=draw) for _ in range(2))
    columns = torch.randn(4, width, dtype=dtype, generator=draw)
    close = {"rtol": CLOSE[dtype], "atol": CLOSE[dtype] * max(rows, 1) ** 0.5}
    for got, want in zip(kernels.column_moments(x), twin.column_moments(x), strict=True):
        torch.testing.assert_close(got, want, **close)
    for loop in ("norm_grad_sums", "norm_grad"):
        third = columns[0] if loop == "norm_grad_sums" else columns
        got, want = (getattr(where, loop)(x, grad, third) for where in (kernels, twin))
        torch.testing.assert_close(got, want, **close)


@pytest.mark.parametrize("groups", [1, 3])
def test_merged_moments_are_those_of_all_rows(groups):
    """Of workers with unequal numbers of rows, one of them with none, and of a group that nobody has rows of."""
    draw = torch.Generator().manual_seed(0)
    rows = [torch.randn(n, 5, dtype=torch.float64, generator=draw) + 100 for n in (7, 0, 1, 40)]
    every = torch.zeros(len(rows), groups, 11, dtype=torch.float64)
    for q, x in enumerate(rows):
        every[q, -1] = torch.cat([torch.tensor([float(len(x))]), *twin.column_moments(x)])
    x = torch.cat(rows)
    want = torch.zeros(groups, 11, dtype=torch.float64)
    want[-1] = torch.cat([torch.tensor([48.0]), x.mean(0), x.var(0, correction=0)])
    for where in (kernels, twin):
        torch.testing.assert_close(where.merge_moments(every), want, rtol=1e-12, atol=0)


def test_rows_with_gaps_and_any_number_of_threads(monkeypatch):
    x = torch.randn(9000, 24)[:, 3:20]
    want = kernels.column_moments(x.contiguous())
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    for got in (kernels.column_moments(x), kernels.column_moments(x.contiguous())):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


@pytest.mark.parametrize("first", ["like the others", "far away"])
def test_means_far_from_zero_lose_no_digits(first):
    """A column of a thousand plus small noise in float32; and one whose first rows are elsewhere."""
    x = torch.randn(9000, 3, generator=torch.Generator().manual_seed(0)) * 0.05 + 1e3
    if first == "far away":
        x[:70] -= 1e3
    mean, squares = kernels.column_moments(x)
    torch.testing.assert_close(mean, x.double().mean(0), rtol=1e-7, atol=0)
    torch.testing.assert_close(squares, (x.double() - x.double().mean(0)).square().sum(0), rtol=1e-5, atol=0)
