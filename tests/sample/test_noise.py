"""The rate of a draw is raised until its noise is small, by formulas over the dense propagation matrix."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from sample.scenes import aggregation, on_workers, propagation, rows_of, small_graph

from isthmus.sample import LastLayer, Neighbours, OptimalBoundary

NODES = small_graph().num_nodes
FEW, MANY = 0.25, 1e6  # shares of rows that a loss reads; no loss reads more than all, but then draws may be wild


def boundary(context):
    """Return the probabilities of a quiet sampler, and what a literal reader needs to judge them."""
    z, whole = aggregation(context, "gcn"), context.whole
    few = replace(context, share_read=FEW)
    sampler = OptimalBoundary(0.1, noise=0.05)
    p = propagation(whole, "gcn", NODES)
    found = {
        "few": sampler.inclusion(few, z.row_norms),
        "many": replace(sampler, refresh=21).inclusion(replace(context, share_read=MANY), z.row_norms),
        "bare": OptimalBoundary(0.1).inclusion(few, z.row_norms),
        "blind": sampler.inclusion(few, None),
        "least": OptimalBoundary(0.1, least=3).inclusion(few, z.row_norms),
        "all": OptimalBoundary(0.1, least=99).inclusion(few, z.row_norms),
    }
    return found, p, whole.halo_nodes, few.rows_read


def test_halo_rows_are_drawn_until_the_mean_that_the_loss_reads_is_quiet():
    raised = 0
    for found, p, halo, read in on_workers(small_graph(), 3, boundary):
        length = rows_of(torch.arange(NODES)).norm(dim=1)
        size = (p @ length).square().sum()
        squares = p[:, halo].square().sum(0) * length[halo].square()

        def noise(q, squares=squares, size=size, read=read):
            return float(((1 / q - 1) * squares).sum() / size / read) ** 0.5

        few, bare = found["few"], found["bare"]
        assert noise(few) <= 0.05 + 1e-6
        assert (few >= bare - 1e-6).all()
        rate = float(few.sum()) / len(few)
        steps = torch.log(torch.tensor(rate / 0.1)) / torch.log(torch.tensor(1.25))
        assert rate == pytest.approx(1) or float(steps) == pytest.approx(round(float(steps)), abs=1e-3)
        raised += rate > 0.11
        torch.testing.assert_close(found["many"], bare)
        assert (found["blind"] == 1).all()
        assert float(found["least"].sum()) == pytest.approx(max(3 * 2, 0.1 * len(halo)), rel=1e-6)
        assert (found["all"] == 1).all()
    assert raised


@pytest.mark.parametrize("coupled", [False, True])
def test_nodes_read_more_neighbours_until_it_is_quiet(coupled):
    sampler = Neighbours(0.1, coupled=coupled, noise=0.05)

    def work(context):
        z, whole = aggregation(context), context.whole
        few = replace(context, share_read=FEW)
        levels, linked = sampler.levels(few, z.row_norms), propagation(whole, "sum", NODES) > 0
        bare = replace(sampler, noise=0.0).levels(few, z.row_norms)
        value = torch.zeros(NODES, dtype=torch.float64)
        value[whole.nodes], value[whole.halo_nodes] = levels.inner, levels.halo
        return levels.level, bare.level, value, linked, few.rows_read

    for level, bare, value, linked, read in on_workers(small_graph(), 3, work):
        p = (level[:, None] * value).clamp_max(1)
        y = torch.where(linked, value, 0)
        left = torch.where(linked, 1 / p - 1, 0) * y.square()
        variance = left.sum(1)[linked.any(1)] / y.sum(1)[linked.any(1)].square()
        assert float(variance.mean() / read) ** 0.5 <= 0.05 + 1e-9
        assert (level >= bare).all()
        assert (level > bare).any()


def test_the_last_layer_reads_more_neighbours_until_it_is_quiet(monkeypatch):
    def work(context):
        z, rows = aggregation(context), torch.arange(context.whole.num_inner)
        inner = context.whole.inner
        few, kept = replace(context, share_read=FEW), {}
        for noise in (0.0, 0.05, 1e-6):
            rule = LastLayer(0.1, least=1, noise=noise)
            kept[noise] = sum(rule.draw(few, inner, rows, step, z.row_norms).csr.num_edges for step in range(40)) / 40
        return kept, inner.num_edges

    for kept, edges in on_workers(small_graph(), 2, work):  # they are few
        assert kept[0.0] < kept[0.05] == kept[1e-6] == edges
    monkeypatch.setattr("isthmus.sample.last_layer.FEW_EDGES", 0)
    for kept, edges in on_workers(small_graph(), 2, work):
        assert kept[0.0] < kept[0.05] < kept[1e-6] == edges
