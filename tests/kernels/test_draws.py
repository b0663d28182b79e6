"""Drawing rows and edges, and selecting what was drawn: native loops and twins alike."""

from __future__ import annotations

import pytest
import torch

from isthmus import kernels
from isthmus.errors import InputError
from isthmus.kernels import Csr, ops
from isthmus.kernels.native import core

needs_core = pytest.mark.skipif(core() is None, reason="the native core was not built: no C++ compiler at install")


@pytest.fixture(params=[pytest.param("native", marks=needs_core), "twin"])
def either(request, monkeypatch):
    """The test runs on the native core and on the twins."""
    if request.param == "twin":
        monkeypatch.setattr(ops, "core", lambda: None)


def by_twin(monkeypatch, function, *arguments):
    with monkeypatch.context() as patch:
        patch.setattr(ops, "core", lambda: None)
        return function(*arguments)


def random_csr(rows: int, cols: int, seed: int = 0) -> Csr:
    """A tenth of all edges, columns ascending, some rows empty."""
    present = torch.rand(rows, cols, generator=torch.Generator().manual_seed(seed)) < 0.1
    present[::7] = False
    indptr = torch.cat([torch.zeros(1, dtype=torch.long), present.sum(1).cumsum(0)])
    return Csr(indptr, present.nonzero()[:, 1].int(), cols)


def dense(csr: Csr) -> torch.Tensor:
    out = torch.zeros(csr.num_rows, csr.num_cols)
    out[csr.edge_rows, csr.indices.long()] = 1
    return out


def test_streams_of_different_numbers_differ():
    numbers = [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (3, 5, 7), (3, 7, 5), (-1,), (2**63,)]
    streams = {kernels.stream(*each) for each in numbers}
    assert len(streams) == len(numbers)
    assert all(0 <= each < 2**64 for each in streams)
    assert kernels.stream(1, 2, 3) == 0x98CAEC997F392C98


@needs_core
def test_rows_are_those_of_the_twin(monkeypatch):
    for count, size in [(1, 0), (2, 1), (50, 3), (50, 49), (1000, 500), (4097, 20), (4097, 4000)]:
        for seed in range(20):
            key = kernels.stream(seed, count, size)
            got = kernels.draw_rows(key, count, size)
            assert torch.equal(got, by_twin(monkeypatch, kernels.draw_rows, key, count, size))


@needs_core
def test_rows_of_unlikely_streams_are_exact_too(monkeypatch):
    """Some of so many streams have far more or fewer small keys than expected: the first look misses the cutoff."""
    for seed in range(3000):
        got = kernels.draw_rows(kernels.stream(seed), 400, 100)
        assert torch.equal(got, by_twin(monkeypatch, kernels.draw_rows, kernels.stream(seed), 400, 100))


@pytest.mark.usefixtures("either")
def test_rows_are_a_sorted_subset_of_the_size_asked_for():
    for count, size in [(0, 0), (1, 1), (1, 0), (10, 10), (1000, 1), (1000, 999), (100_000, 30_000)]:
        rows = kernels.draw_rows(kernels.stream(4, count), count, size)
        assert rows.dtype == torch.int32
        assert len(rows) == size
        assert (rows.diff() > 0).all()
        assert size == 0 or (rows[0] >= 0 and rows[-1] < count)
        assert torch.equal(rows, kernels.draw_rows(kernels.stream(4, count), count, size))
    assert torch.equal(kernels.draw_rows(9, 12, 12), torch.arange(12, dtype=torch.int32))
    with pytest.raises(InputError, match="between none and all"):
        kernels.draw_rows(1, 5, 6)


def test_every_row_and_every_pair_is_drawn_equally_often():
    count, size, turns = 40, 10, 4000
    drawn = torch.zeros(turns, count)
    for turn in range(turns):
        drawn[turn, kernels.draw_rows(kernels.stream(11, turn), count, size).long()] = 1
    share = size / count
    squares = ((drawn.sum(0) - turns * share) ** 2 / (turns * share * (1 - share))).sum()
    assert 15 < squares < 75  # about χ² with 39 degrees of freedom
    pairs, expected = drawn.T @ drawn, turns * share * (size - 1) / (count - 1)
    off = pairs[~torch.eye(count, dtype=torch.bool)]
    assert ((off - expected).abs() < 5.5 * expected**0.5).all()


@needs_core
@pytest.mark.parametrize("symmetric", [False, True])
def test_edges_are_those_of_the_twin(monkeypatch, symmetric):
    csr, draw = random_csr(300, 200), torch.Generator().manual_seed(1)
    row_ids, col_ids = torch.randint(2**40, (300,), generator=draw), torch.randint(2**40, (200,), generator=draw)
    for p in (0.0, 0.25, 1.0, torch.rand(csr.num_edges, generator=draw)):
        arguments = kernels.stream(5), csr, row_ids, col_ids, p, symmetric
        keep = kernels.draw_edges(*arguments)
        assert torch.equal(keep, by_twin(monkeypatch, kernels.draw_edges, *arguments))
        assert not isinstance(p, float) or p == 0.25 or (keep == (p == 1.0)).all()


@pytest.mark.parametrize("symmetric", [False, True])
def test_edges_are_kept_as_often_as_asked(symmetric):
    ids, csr = torch.arange(60), Csr(torch.arange(61) * 60, torch.arange(60, dtype=torch.int32).repeat(60), 60)
    chances, turns = torch.linspace(0, 1, 3600), 1000
    if symmetric:
        chances = chances.view(60, 60).triu()
        chances = (chances + chances.triu(1).T).flatten()

    def draws(key, p):
        each = (kernels.draw_edges(kernels.stream(key, t), csr, ids, ids, p, symmetric) for t in range(turns))
        return torch.stack(list(each))

    keeps, half = draws(2, chances), draws(3, 0.5)
    error = (chances * (1 - chances) / turns).sqrt()
    assert ((keeps.float().mean(0) - chances).abs() <= 5 * error + 1e-6).all()
    both_ways = keeps.view(turns, 60, 60) == keeps.view(turns, 60, 60).mT
    assert both_ways.all() == symmetric
    neighbours = (half[:, 1:] == half[:, :-1]).float().mean(0)  # edges beside each other agree half of the time
    assert ((neighbours - 0.5).abs() < 5.5 * 0.5 / turns**0.5).all()


@pytest.mark.usefixtures("either")
def test_two_workers_draw_the_same_edges_of_one_graph():
    """Ids decide: the pattern cut in two and its columns in another order give the same draws."""
    csr, ids, order = random_csr(40, 40), torch.arange(40) + 1000, torch.randperm(40)
    whole = dense(kernels.select_edges(csr, kernels.draw_edges(8, csr, ids, ids, 0.5, True))[0])
    for mine in (slice(0, 17), slice(17, 40)):
        local = kernels.select_rows(csr, torch.arange(40, dtype=torch.int32)[mine])
        moved = Csr(local.indptr, order.argsort()[local.indices.long()].int(), 40)
        kept, _ = kernels.select_edges(moved, kernels.draw_edges(8, moved, ids[mine], ids[order], 0.5, True))
        assert torch.equal(dense(kept), whole[mine][:, order])


@pytest.mark.usefixtures("either")
def test_selected_rows_are_those_of_the_dense_matrix():
    csr = random_csr(50, 70)
    for rows in (torch.arange(50), torch.tensor([49, 3, 3, 0, 7, 14, 20]), torch.tensor([0, 7]), torch.tensor([])):
        got = kernels.select_rows(csr, rows.int())
        assert torch.equal(dense(got), dense(csr)[rows.long()])
        assert (got.num_rows, got.num_cols, got.targets) == (len(rows), 70, None)
        assert (got.indptr.dtype, got.indices.dtype) == (torch.int64, torch.int32)


@pytest.mark.usefixtures("either")
def test_selected_edges_are_those_of_the_dense_matrix():
    csr, draw = random_csr(50, 70), torch.Generator().manual_seed(3)
    for p in (0.0, 0.4, 1.0):
        keep = torch.rand(csr.num_edges, generator=draw) < p
        got, numbers = kernels.select_edges(csr, keep)
        want = torch.zeros(50, 70)
        want[csr.edge_rows[keep], csr.indices.long()[keep]] = 1
        assert torch.equal(dense(got), want)
        assert torch.equal(numbers, keep.nonzero().flatten())
        assert torch.equal(got.indices, csr.indices[keep])  # in their order
        assert got.indptr.dtype == torch.int64


@pytest.mark.usefixtures("either")
def test_selected_edges_get_new_columns():
    csr, stay = random_csr(50, 70), torch.arange(70) % 3 == 0
    columns = torch.where(stay, stay.cumsum(0) - 1, -1).int()
    got, _ = kernels.select_edges(csr, stay[csr.indices.long()], columns, int(stay.sum()))
    assert torch.equal(dense(got), dense(csr)[:, stay])
    compact = csr.compact()
    kept, _ = kernels.select_edges(compact, torch.ones(csr.num_edges, dtype=torch.bool))
    assert torch.equal(kept.targets, compact.targets)


def test_results_do_not_depend_on_the_number_of_threads():
    csr, ids, rows = random_csr(500, 400), torch.arange(500), torch.randperm(500)[:300].int()
    results = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        keep = kernels.draw_edges(6, csr, ids, ids[:400], 0.5, True)
        (kept, numbers), some = kernels.select_edges(csr, keep), kernels.select_rows(csr, rows)
        results.append([keep, kept.indptr, kept.indices, numbers, some.indptr, some.indices])
    for result in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(results[0], result, strict=True))


@pytest.mark.usefixtures("either")
def test_empty_patterns():
    nothing, none = torch.zeros(0, dtype=torch.int32), torch.zeros(0, dtype=torch.bool)
    for rows in (0, 4):
        empty, ids = Csr(torch.zeros(rows + 1, dtype=torch.long), nothing, 5), torch.arange(5)
        assert kernels.draw_edges(1, empty, ids[:rows], ids, 0.5, True).shape == (0,)
        kept, numbers = kernels.select_edges(empty, none, ids.int(), 5)
        assert (kept.num_rows, kept.num_edges, len(numbers)) == (rows, 0, 0)
        assert kernels.select_rows(empty, torch.arange(rows, dtype=torch.int32)).num_rows == rows
        assert kernels.select_rows(empty, nothing).indptr.tolist() == [0]


def test_what_does_not_fit_is_refused():
    csr, ids = random_csr(6, 6), torch.arange(6)
    with pytest.raises(InputError, match="col_ids"):
        kernels.draw_edges(1, csr, ids, ids[:5], 0.5, False)
    with pytest.raises(InputError, match="keep"):
        kernels.select_edges(csr, torch.ones(csr.num_edges + 1, dtype=torch.bool))
    with pytest.raises(InputError, match="together"):
        kernels.select_edges(csr, torch.ones(csr.num_edges, dtype=torch.bool), ids.int())
