"""Minimum vertex covers: against brute force, the core against its twin, and which of several covers is taken."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from isthmus import kernels
from isthmus.kernels import Csr, ops
from isthmus.kernels.cover import ALL
from isthmus.kernels.native import core

needs_core = pytest.mark.skipif(core() is None, reason="the native core was not built: no C++ compiler at install")


@pytest.fixture(params=[pytest.param("native", marks=needs_core), "twin"])
def either(request, monkeypatch):
    """The test runs on the native core and on the twin."""
    if request.param == "twin":
        monkeypatch.setattr(ops, "core", lambda: None)


def csr_of(present: torch.Tensor) -> Csr:
    indptr = torch.cat([torch.zeros(1, dtype=torch.long), present.sum(1).cumsum(0)])
    return Csr(indptr, present.nonzero()[:, 1].int(), present.shape[1])


def random_graph(rows: int, cols: int, share: float, seed: int) -> torch.Tensor:
    return torch.rand(rows, cols, generator=torch.Generator().manual_seed(seed)) < share


def all_covers(present: torch.Tensor) -> list[tuple[int, int]]:
    """(size, edges of uncovered rows) of every vertex cover, by trying every set of rows."""
    found = []
    for chosen in product([False, True], repeat=len(present)):
        left = present[~torch.tensor(chosen, dtype=torch.bool)]
        found.append((sum(chosen) + int(left.any(0).sum()), int(left.sum())))
    return found


@pytest.mark.parametrize("seed", range(12))
def test_least_cover_with_the_edges_asked_for(either, seed):
    """Of all covers of the least size: the fewest lent edges, the most, and no more than were asked for between."""
    present = random_graph(8, 6 + seed % 4, (0.1, 0.2, 0.35)[seed % 3], seed)
    covers = all_covers(present)
    least = min(size for size, _ in covers)
    lent = [edges for size, edges in covers if size == least]
    for lend in (0, (min(lent) + max(lent)) // 2, ALL):
        rows, cols = kernels.vertex_cover(csr_of(present), lend)
        assert (rows[:, None] | cols)[present].all()
        assert int(rows.sum() + cols.sum()) == least
        edges = int(present[~rows].sum())
        assert edges == {0: min(lent), ALL: max(lent)}.get(lend, edges)
        assert edges <= max(lend, min(lent))


@needs_core
@pytest.mark.parametrize(
    ("rows", "cols", "share"), [(120, 90, 0.02), (90, 120, 0.01), (150, 150, 0.006), (60, 60, 0.2)]
)
def test_core_and_twin_find_the_same(monkeypatch, rows, cols, share):
    """The two extreme covers do not depend on the matching; between them sizes are equal."""
    graph = csr_of(random_graph(rows, cols, share, rows))
    for lend in (0, graph.num_edges // 2, ALL):
        native = kernels.vertex_cover(graph, lend)
        with monkeypatch.context() as patch:
            patch.setattr(ops, "core", lambda: None)
            twin = kernels.vertex_cover(graph, lend)
        assert sum(map(torch.sum, native)) == sum(map(torch.sum, twin))
        if lend in (0, ALL):
            assert all(torch.equal(a, b) for a, b in zip(native, twin, strict=True))


@pytest.mark.parametrize(("rows", "cols"), [(0, 0), (0, 3), (3, 0), (3, 4)])
def test_a_graph_without_edges_needs_no_cover(either, rows, cols):
    covered = kernels.vertex_cover(
        Csr(torch.zeros(rows + 1, dtype=torch.long), torch.empty(0, dtype=torch.int32), cols)
    )
    assert [len(side) for side in covered] == [rows, cols]
    assert not any(side.any() for side in covered)


def test_edges_that_occur_twice(either):
    """Three rows read one hub, twice each: the hub alone is covered, and all six edges are lent."""
    graph = Csr(torch.tensor([0, 2, 4, 6]), torch.tensor([1] * 6, dtype=torch.int32), 2)
    rows, cols = kernels.vertex_cover(graph)
    assert not rows.any()
    assert cols.tolist() == [False, True]


@needs_core
def test_long_alternating_paths():
    """A path of 200,001 nodes has one cover of the least size; neither search nor choice is recursive."""
    n = 100_000  # row k has the columns k and k + 1
    indices = torch.stack([torch.arange(n), torch.arange(n) + 1], dim=1).flatten().int()
    rows, cols = kernels.vertex_cover(Csr(torch.arange(0, 2 * n + 1, 2), indices, n + 1), ALL)
    assert rows.all()
    assert not cols.any()
