"""Edges drawn by water-filled probabilities: how often, how independently, and by whom the same."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from isthmus import kernels
from isthmus.kernels import Csr, WaterFilling, ops
from isthmus.kernels.native import core

TURNS = 4000  # of the draws that are counted

needs_core = pytest.mark.skipif(core() is None, reason="the native core was not built: no C++ compiler at install")


@pytest.fixture(params=[pytest.param("native", marks=needs_core), "twin"])
def either(request, monkeypatch):
    """The test runs on the native core and on the twins."""
    if request.param == "twin":
        monkeypatch.setattr(ops, "core", lambda: None)


def random_csr(rows: int, cols: int, seed: int = 0, share: float = 0.3) -> Csr:
    """Columns ascending, rows of unequal length, some of them empty."""
    draw = torch.Generator().manual_seed(seed)
    present = torch.rand(rows, cols, generator=draw) < torch.rand(rows, 1, generator=draw) * 2 * share
    present[::7] = False
    indptr = torch.cat([torch.zeros(1, dtype=torch.long), present.sum(1).cumsum(0)])
    return Csr(indptr, present.nonzero()[:, 1].int(), cols)


def dense(csr: Csr, weights: Tensor) -> Tensor:
    out = torch.zeros(csr.num_rows, csr.num_cols, dtype=weights.dtype)
    out[csr.edge_rows, csr.indices.long()] = weights
    return out


def a_worker(n: int = 40, h: int = 30) -> tuple[Csr, Csr, Tensor, Tensor, Tensor]:
    """Inner and halo pattern, their values, and levels that keep a third of the edges."""
    inner, halo, draw = random_csr(n, n), random_csr(n, h, seed=1), torch.Generator().manual_seed(2)
    value, halo_value = kernels.floored(*(torch.randn(count, generator=draw).exp() for count in (n, h)))
    budget = (inner.indptr.diff() + halo.indptr.diff()).double() / 3
    return inner, halo, value, halo_value, kernels.fill_levels(inner, halo, value, halo_value, budget)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("coupled", [False, True])
def test_kept_edges_count_the_inverse_of_their_probability(coupled):
    inner, _, value, _, level = a_worker()
    level[3] = torch.inf
    ids, filling = torch.arange(40) * 1000, WaterFilling(level, value, coupled)
    p = kernels.edge_probability(inner, filling)
    kept, weights, numbers = kernels.draw_weighted(4, inner, filling, (ids, ids), dtype=torch.float64, with_edges=True)
    assert 0 < kept.num_edges < inner.num_edges
    assert torch.equal(kept.indices, inner.indices[numbers])
    assert torch.equal(kept.edge_rows, inner.edge_rows[numbers])
    assert torch.equal(weights, 1 / p[numbers])
    certain = p == 1
    assert certain.sum() > 10
    assert torch.isin(certain.nonzero().flatten(), numbers).all()
    assert (weights[certain[numbers]] == 1).all()
    half = kernels.draw_weighted(4, inner, filling, (ids, ids))
    assert torch.equal(half[1], weights.float())
    assert half[2] is None


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("coupled", [False, True])
def test_the_transpose_keeps_the_same_edges(coupled):
    _, halo, _, value, level = a_worker()
    out, ids, halo_ids = kernels.transpose(halo)[0], torch.randperm(40), torch.randperm(30) + 2**33
    filling = WaterFilling(level, value, coupled)
    for seed in range(20):
        kept, weights, _ = kernels.draw_weighted(seed, halo, filling, (ids, halo_ids))
        back, back_weights, _ = kernels.draw_weighted(seed, out, filling, (halo_ids, ids), transposed=True)
        assert torch.equal(dense(kept, weights), dense(back, back_weights).T)
    p, back = kernels.edge_probability(halo, filling), kernels.edge_probability(out, filling, transposed=True)
    assert torch.equal(dense(halo, p), dense(out, back).T)


@pytest.mark.usefixtures("either")
def test_ids_decide_and_not_places():
    inner, _, value, _, level = a_worker()
    ids, order, mine = torch.arange(40) + 500, torch.randperm(40), torch.arange(17, 40)
    whole = dense(*kernels.draw_weighted(8, inner, WaterFilling(level, value), (ids, ids))[:2])
    rows = kernels.select_rows(inner, mine.int())
    moved = Csr(rows.indptr, order.argsort()[rows.indices.long()].int(), 40)
    filling = WaterFilling(level[mine], value[order])
    part = dense(*kernels.draw_weighted(8, moved, filling, (ids[mine], ids[order]))[:2])
    assert torch.equal(part, whole[mine][:, order])


def many_draws(csr: Csr, filling: WaterFilling, key: int) -> Tensor:
    """Which edges each draw has kept, bool [TURNS, edges]."""
    ids = torch.arange(csr.num_rows), torch.arange(csr.num_cols) + 10_000
    kept = torch.zeros(TURNS, csr.num_edges, dtype=torch.bool)
    for turn in range(TURNS):
        kept[turn, kernels.draw_weighted(kernels.stream(key, turn), csr, filling, ids, with_edges=True)[2]] = True
    return kept


def deviations(counts: Tensor, p: Tensor) -> Tensor:
    """In standard errors, of those that are neither certain nor rare (then they are about normal)."""
    error = (TURNS * p * (1 - p)).sqrt()
    return ((counts - TURNS * p) / error)[error > 4]


@pytest.mark.parametrize("coupled", [False, True])
def test_edges_are_kept_as_often_as_their_probability_says(coupled):
    _, halo, _, value, level = a_worker(n=60, h=40)
    filling = WaterFilling(level, value, coupled)
    p, cols = kernels.edge_probability(halo, filling), halo.indices.long()
    kept = many_draws(halo, filling, 3)
    z = deviations(kept.double().sum(0), p)
    assert len(z) > 300
    assert z.abs().max() < 4.8  # among so many, one beyond it is as rare as 1 in 1000
    assert kept[:, p == 1].all()
    if not coupled:
        assert abs(float((z**2).mean()) - 1) < 5 * (2 / len(z)) ** 0.5
        return
    for each in kept[:200]:  # with an edge of a source, those of a larger p are kept too
        least = torch.full((40,), 2.0).double().scatter_reduce_(0, cols[each], p[each], "amin")
        most = torch.full((40,), -1.0).double().scatter_reduce_(0, cols[~each], p[~each], "amax")
        assert (most < least).all()


@pytest.mark.parametrize("coupled", [False, True])
def test_edges_are_drawn_independently(coupled):
    """Two edges, unless coupled by their source, are kept together as often as by chance."""
    csr = Csr(torch.arange(13) * 12, torch.arange(12, dtype=torch.int32).repeat(12), 12)
    kept = many_draws(csr, WaterFilling(torch.full((12,), 0.4), torch.ones(12), coupled), 5).double()
    together = csr.indices[:, None] == csr.indices if coupled else torch.eye(144, dtype=torch.bool)
    pairs = (kept.T @ kept)[~together]
    assert deviations(pairs, torch.full_like(pairs, 0.16)).abs().max() < 5.5


@pytest.mark.parametrize("coupled", [False, True])
def test_inclusion_is_how_often_a_halo_node_is_read(coupled):
    _, halo, _, value, level = a_worker(n=25, h=40)
    filling = WaterFilling(level.clamp_max(1e3) * 0.3, value, coupled)
    kept = many_draws(halo, filling, 9).double()
    read = torch.zeros(TURNS, 40).double().index_add_(1, halo.indices.long(), kept) > 0
    chance = kernels.inclusion(kernels.transpose(halo)[0], filling)
    z = deviations(read.double().sum(0), chance)
    assert len(z) > 25
    assert z.abs().max() < 4.5
    p = dense(halo, kernels.edge_probability(halo, filling))
    want = p.amax(0) if coupled else 1 - (1 - p).prod(0)
    torch.testing.assert_close(chance, want, rtol=1e-12, atol=1e-14)
