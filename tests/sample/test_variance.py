"""`isthmus variance`: the figures against theory and against sums written out, and the command as a person meets it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import community_graph, cut
from sample.scenes import aggregation, dense_chances, on_workers, propagation, rows_of, small_graph

from isthmus import cli
from isthmus.cli import shared
from isthmus.kernels import Csr, SparseMatrix
from isthmus.sample import Neighbours
from isthmus.sample.variance import (
    SAMPLERS,
    Question,
    compare,
    expected,
    lemma3,
    lognormal,
    measure,
    neighbour_chances,
    projected,
    rate_for,
)

NODES = 48


def written_out(context, norm: str, sampler: Neighbours):
    """Return p, ‖y‖² and a of a worker's edges as dense matrices [n, N], without self loops."""
    z, whole = aggregation(context, norm), context.whole
    p = dense_chances(whole, neighbour_chances(z, sampler), NODES)
    y = propagation(whole, norm, NODES) * rows_of(torch.arange(NODES)).norm(dim=1)
    y[p == 0] = 0
    a = torch.ones(NODES, dtype=torch.float64)
    a[whole.nodes] = sampler.inner_weight
    inner = torch.zeros(NODES, dtype=torch.bool)
    inner[whole.nodes] = True
    return p, y.square(), a, inner


@pytest.mark.parametrize("norm", ["mean", "gcn", "sum"])
def test_expected_variance_is_the_sum_over_edges(norm):
    sampler = Neighbours(0.2)

    def work(context):
        p, squares, _, inner = written_out(context, norm, sampler)
        terms = torch.where(p > 0, (1 / p.clamp_min(1e-9) - 1) * squares, 0.0)
        z = aggregation(context, norm)
        return terms[:, inner].sum(), terms[:, ~inner].sum(), expected(z, neighbour_chances(z, sampler))

    results = on_workers(small_graph(), 3, work)
    want = torch.stack([sum(each[0] for each in results), sum(each[1] for each in results)])
    for *_, found in results:  # the same on every worker
        torch.testing.assert_close(found, want, rtol=1e-9, atol=0)


@pytest.mark.parametrize("norm", ["mean", "gcn"])
@pytest.mark.parametrize(("rate", "clamped"), [(0.02, False), (0.3, True)])
def test_lemma_3(norm, rate, clamped):
    """Eq. 20 written out node by node is exact while every p is below 1, and a bound after that."""
    sampler = Neighbours(rate)

    def work(context):
        p, squares, a, _ = written_out(context, norm, sampler)
        total = 0.0
        for row, chance in zip(squares, p, strict=True):
            linked = chance > 0
            count, budget = int(linked.sum()), rate * int(linked.sum())
            if count:
                scores = (a[linked] * row[linked]).sqrt()
                total += float(count / budget * scores.square().sum() - scores.sum() ** 2 / budget)
        return total, bool((p == 1).any()), lemma3(aggregation(context, norm), sampler)

    results = on_workers(small_graph(), 3, work)
    found = results[0][2]
    assert any(full for _, full, _ in results) == clamped
    assert found["eq20"] == pytest.approx(sum(total for total, *_ in results), rel=1e-9)
    assert found["difference"] == pytest.approx(found["uniform"] - found["importance"])
    if clamped:
        assert 0 < found["difference"] < (1 - 1e-3) * found["eq20"]
    else:
        assert found["difference"] == pytest.approx(found["eq20"], rel=1e-5)


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_rate_for_so_many_rows(name):
    def work(context):
        z = aggregation(context)
        wanted = z.fetched(Neighbours(0.2))
        return z.fetched(SAMPLERS[name](rate_for(z, SAMPLERS[name], wanted, 0.2))) / wanted

    assert on_workers(small_graph(), 3, work) == [pytest.approx(1, rel=1e-3)] * 3


def test_measured_variance_is_that_of_the_theory():
    def work(context):
        return compare(aggregation(context), Question(rate=0.3, draws=200))

    one, other = on_workers(small_graph(), 2, work)
    assert one == other
    for trial in [*one["equal_rate"], *one["equal_traffic"]]:
        assert trial["rows"] == pytest.approx(trial["expected_rows"], rel=0.05)
        for which in ("inner", "halo", "all"):
            found, error = trial["variance"][which], trial["error"][which]
            assert trial["theory"] is None or abs(found - trial["theory"][which]) <= 4.5 * error + 1e-12
    rows = [trial["expected_rows"] for trial in one["equal_traffic"]]
    assert max(rows) <= 1.003 * min(rows)
    by_name = {trial["sampler"]: trial for trial in one["equal_rate"]}
    assert list(by_name) == list(SAMPLERS)
    for name in ("optimal-boundary", "boundary", "boundary-edge"):
        assert by_name[name]["variance"]["inner"] == 0
    assert by_name["independent"]["theory"] == by_name["coupled"]["theory"]
    assert one["coupled_to_independent"]["equal_rate"]["variance"] == pytest.approx(1, abs=0.1)
    assert one["coupled_to_independent"]["equal_rate"]["rows"] < 0.8
    assert one["optimal_to_boundary"]["equal_rate"]["halo_variance"] < 0.8


def test_rate_one_scatters_nowhere():
    result = on_workers(small_graph(), 2, lambda context: compare(aggregation(context), Question(rate=1.0, draws=2)))[0]
    for trial in [*result["equal_rate"], *result["equal_traffic"]]:
        assert trial["rows"] == trial["rate"] == 1
        assert set(trial["variance"].values()) == {0}
    assert result["optimal_to_boundary"]["equal_rate"] == {"rows": 1, "halo_variance": None, "variance": None}


def test_a_draw_is_measured_against_the_whole_graph():
    """The error is that between the two propagation matrices."""

    def work(context):
        z, sampler = aggregation(context, "gcn"), Neighbours(0.3)
        said = []
        found = measure(z, sampler, 3, said.append)
        squares = []
        for step in range(3):
            drawn = propagation(sampler.draw(context, step, z.row_norms), "gcn", NODES)
            error = (drawn - propagation(context.whole, "gcn", NODES)) @ rows_of(torch.arange(NODES))
            squares.append(error.square().sum())
        return found, torch.stack(squares), said

    results = on_workers(small_graph(), 2, work)
    for found, _, said in results:
        torch.testing.assert_close(found[:, 3], results[0][1] + results[1][1])
        assert said == [0, 1, 2, 3]


def test_rows_to_aggregate():
    draw = torch.Generator().manual_seed(0)
    dense = torch.randn(30, 8, generator=draw).double() * (torch.rand(30, 8, generator=draw) < 0.4)
    indptr = torch.cat([torch.zeros(1, dtype=torch.long), (dense != 0).sum(1).cumsum(0)])
    sparse = SparseMatrix(Csr(indptr, dense.nonzero()[:, 1].int(), 8), dense[dense != 0])
    rows = projected(dense, 5, seed=3)
    assert rows.shape == (30, 5)
    assert (rows >= 0).all()
    torch.testing.assert_close(projected(sparse, 5, seed=3), rows)
    torch.testing.assert_close(projected(dense[10:], 5, seed=3), rows[10:])  # the same directions on every worker
    lengths = lognormal(4000, 6, seed=1).norm(dim=1).log()
    assert abs(float(lengths.mean())) < 0.1
    assert float(lengths.std()) == pytest.approx(1, abs=0.05)
    random = Question(features="random", width=6)
    assert random.rows(dense, 0).shape == (30, 6)
    assert not torch.equal(random.rows(dense, 0), random.rows(dense, 1))


@pytest.fixture
def variance(monkeypatch, capsys, tmp_path):
    """Return a function that runs the command in an empty folder and returns (exit status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shared.out, "_width", 120)  # a console remembers the width of its first test

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["isthmus", "variance", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err

    return run


def test_json(variance, tmp_path):
    book = cut(community_graph(), 3, "random", tmp_path)
    options = ("--rate", "0.2", "--draws", "3", "--width", "8", "--norm", "gcn", "--features", "random", "--seed", "5")
    status, said, _ = variance(str(book.folder), *options, "--samplers", "coupled, boundary", "--json")
    result = json.loads(said.splitlines()[-1])
    assert status == 0
    asked = {"rate": 0.2, "draws": 3, "width": 8, "norm": "gcn", "features": "random", "seed": 5, "parts": 3}
    assert {name: result[name] for name in asked} == asked
    assert result["halo_rows"] == book.quality["volume"]
    for table in ("equal_rate", "equal_traffic"):
        assert [trial["sampler"] for trial in result[table]] == ["coupled", "boundary"]
    assert "optimal_to_boundary" not in result
    again = variance(str(book.folder), *options, "--samplers", "coupled,boundary", "--json")
    assert again[1] == said  # a function of the seed


def test_tables(variance, tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    status, said, _ = variance(str(book.folder), "--draws", "2", "--width", "4")
    assert status == 0
    assert all(said.count(f" {name} ") >= 2 for name in SAMPLERS)
    for words in ("every sampler at rate 0.1", "as many rows as independent", "coupled fetches", "by eq. 20"):
        assert words in " ".join(said.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing",), "a parts folder is needed: `isthmus partition"),
        (("random-1",), "cut the graph into more parts"),
        (("zeros/random-2",), "--features random"),
        (("random-2", "--rate", "0"), "above 0 and at most 1"),
        (("random-2", "--rate", "nan"), "above 0 and at most 1"),
        (("random-2", "--draws", "1"), "draws must be at least 2"),
        (("random-2", "--width", "0"), "width must be at least 1"),
        (("random-2", "--norm", "median"), "use one of mean, gcn, sum"),
        (("random-2", "--features", "mine"), "use one of own, random"),
        (("random-2", "--samplers", "boundary,magic"), "unknown sampler 'magic': use some of independent,coupled"),
    ],
)
def test_what_is_wrong_is_one_line_and_status_2(variance, tmp_path, arguments, words):
    graph = community_graph()
    cut(graph, 1, "random", tmp_path)
    cut(graph, 2, "random", tmp_path)
    cut(replace(graph, x=np.zeros_like(graph.x)), 2, "random", tmp_path / "zeros")
    status, said, complaint = variance(*arguments)
    assert (status, said, complaint.count("\n")) == (2, "", 1)
    assert words in complaint
