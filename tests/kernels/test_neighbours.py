"""Draws of neighbours: the native loops give what their twins give, whatever the threads and the other rows."""

from __future__ import annotations

import math

import pytest
import torch

from isthmus import kernels
from isthmus.kernels import Csr, Spans, neighbours_twin, ops
from isthmus.kernels.native import core

needs_core = pytest.mark.skipif(core() is None, reason="the native core was not built: no C++ compiler at install")


@pytest.fixture(params=[pytest.param("native", marks=needs_core), "twin"])
def either(request, monkeypatch):
    """The test runs on the native core and on the twins."""
    if request.param == "twin":
        monkeypatch.setattr(ops, "core", lambda: None)


def random_rows(rows: int = 60, cols: int = 500, seed: int = 0) -> tuple[Csr, torch.Tensor, torch.Tensor]:
    """Return rows of very different degrees, some empty, names of the columns, and weights, some of them zero."""
    of = torch.Generator().manual_seed(seed)
    degree = torch.randint(0, 12, (rows,), generator=of)
    degree[::9], degree[4::13] = 0, torch.randint(100, cols, (len(degree[4::13]),), generator=of)
    indices = torch.cat([torch.randperm(cols, generator=of)[:d].sort().values for d in degree.tolist()]).int()
    indptr = torch.cat([degree.new_zeros(1), degree.cumsum(0)])
    weight = torch.rand(len(indices), generator=of) * (torch.rand(len(indices), generator=of) < 0.8)
    return Csr(indptr, indices, cols), torch.randperm(10 * cols, generator=of)[:cols], weight


def spans_of(csr: Csr, rows: torch.Tensor) -> Spans:
    return Spans(*kernels.row_spans(csr, rows), rows.long() * 7 + 3)


METHODS = {
    "uniform": lambda csr, spans, k, names, weight: kernels.draw_uniform(5, csr.indices, spans, k, False, True),
    "replace": lambda csr, spans, k, names, weight: kernels.draw_uniform(5, csr.indices, spans, k, True, True),
    "labor": lambda csr, spans, k, names, weight: kernels.draw_labor(5, csr.indices, spans, names, k, True),
    "weighted": lambda csr, spans, k, names, weight: kernels.draw_by_weight(5, csr.indices, spans, weight, k),
    "weighted-replace": lambda csr, spans, k, names, weight: kernels.draw_by_weight(
        5, csr.indices, spans, weight, k, True
    ),
}
each_method = pytest.mark.parametrize("method", METHODS)


def same(one: kernels.Drawn, other: kernels.Drawn) -> bool:
    both = zip(one, other, strict=True)
    return all((a is None and b is None) or torch.equal(a, b) for a, b in both)


@needs_core
@each_method
@pytest.mark.parametrize("fanout", [0, 1, 5, 40, 700])
def test_native_and_twin_draw_the_same(method, fanout, monkeypatch):
    (csr, names, weight), rows = random_rows(), torch.arange(60, dtype=torch.int32)
    native = METHODS[method](csr, spans_of(csr, rows), fanout, names, weight)
    monkeypatch.setattr(ops, "core", lambda: None)
    assert same(native, METHODS[method](csr, spans_of(csr, rows), fanout, names, weight))


@needs_core
@each_method
def test_neither_threads_nor_other_rows_matter(method):
    csr, names, weight = random_rows()
    rows = torch.randperm(60, generator=torch.Generator().manual_seed(1)).int()
    together = METHODS[method](csr, spans_of(csr, rows), 4, names, weight)
    try:
        torch.set_num_threads(2)
        assert same(together, METHODS[method](csr, spans_of(csr, rows), 4, names, weight))
    finally:
        torch.set_num_threads(1)
    for at in range(0, 60, 7):
        alone = METHODS[method](csr, spans_of(csr, rows[at : at + 1]), 4, names, weight)
        assert torch.equal(alone.columns, together.columns[together.indptr[at] : together.indptr[at + 1]])


def test_as_many_as_asked_for_each_once(either):
    (csr, _, weight), rows = random_rows(), torch.arange(60, dtype=torch.int32)
    degree, spans = csr.indptr.diff(), spans_of(csr, rows)
    for k in (1, 3, 33, 200):
        drawn = kernels.draw_uniform(8, csr.indices, spans, k, False, True)
        assert torch.equal(drawn.indptr.diff(), degree.clamp_max(k))
        assert len(drawn.numbers.unique()) == len(drawn.numbers)
        assert torch.equal(csr.indices[drawn.numbers], drawn.columns)
        inside = (drawn.numbers >= torch.repeat_interleave(csr.indptr[:-1], drawn.indptr.diff())) & (
            drawn.numbers < torch.repeat_interleave(csr.indptr[1:], drawn.indptr.diff())
        )
        assert inside.all()
        heavy = kernels.draw_by_weight(8, csr.indices, spans, weight, k)
        assert (weight[heavy.numbers] > 0).all()
        assert len(heavy.numbers.unique()) == len(heavy.numbers)
    assert torch.equal(kernels.draw_uniform(8, csr.indices, spans, -1).columns, csr.indices)
    again = kernels.draw_uniform(8, csr.indices, spans, 5, True)
    assert torch.equal(again.indptr.diff(), torch.where(degree > 0, 5, 0))


def test_exponential_variates_need_no_logarithm():
    bits = torch.randint(-(2**63), 2**63 - 1, (200_000,), generator=torch.Generator().manual_seed(0))
    bits[:4] = torch.tensor([0, -1, 1 << 31, -(2**63)])
    variate = neighbours_twin.exponential(bits).double() * 2.0**-40
    low, high = bits & 0xFFFFFFFF, (bits >> 32) & 0xFFFFFFFF
    halvings = torch.tensor([32 if not x else (x & -x).bit_length() - 1 for x in low.tolist()])
    exact = halvings * math.log(2) - torch.log1p(-(high.double() + 0.5) * 2.0**-33)
    assert torch.allclose(variate, exact, rtol=1e-6, atol=1e-10)
    assert abs(variate.mean() - 1) < 4 / 200_000**0.5
    assert abs(variate.square().mean() - 2) < 4 * 20**0.5 / 200_000**0.5


def test_nodes_are_numbered_as_they_are_met(either):
    for dtype in (torch.int32, torch.int64):
        table, nodes = torch.zeros(50, dtype=torch.int32), torch.empty(51, dtype=dtype)
        first, known = kernels.number_nodes(torch.tensor([7, 3, 7, 40], dtype=dtype), 1, table, nodes, 0)
        assert first.tolist() == [0, 1, 0, 2]
        assert known == 3
        more, known = kernels.number_nodes(torch.tensor([40, 9, 9, 3, 0], dtype=dtype), 1, table, nodes, known)
        assert more.tolist() == [2, 3, 3, 1, 4]
        assert nodes[:known].tolist() == [7, 3, 40, 9, 0]
        near_the_end = 2**32 - 60  # of 32 unsigned bits
        again, known = kernels.number_nodes(torch.tensor([9, 7, 9], dtype=dtype), near_the_end, table, nodes, 0)
        assert again.tolist() == [0, 1, 0]
        again, known = kernels.number_nodes(torch.tensor([7, 1], dtype=dtype), near_the_end, table, nodes, known)
        assert again.tolist() == [1, 2]
        none, known = kernels.number_nodes(torch.empty(0, dtype=dtype), near_the_end, table, nodes, known)
        assert len(none) == 0
        assert known == 3


def test_rows_are_sorted_by_name(either):
    csr, names, _ = random_rows()
    ordered, order = kernels.sort_rows(csr, names, order=True)
    for r in range(csr.num_rows):
        mine = slice(*csr.indptr[r : r + 2].tolist())
        assert names[ordered.indices[mine].long()].tolist() == sorted(names[csr.indices[mine].long()].tolist())
    assert torch.equal(csr.indices[order], ordered.indices)
