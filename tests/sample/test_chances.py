"""Statistics over many draws of every sampler: its probabilities, no bias, and the variance that theory predicts."""

from __future__ import annotations

from functools import cache, cached_property
from statistics import NormalDist

import pytest
import torch
from sample.scenes import (
    SAMPLERS,
    aggregation,
    dense_chances,
    on_workers,
    propagation,
    ring_graph,
    rows_of,
    small_graph,
)
from torch import Tensor

from isthmus.sample import Neighbours
from isthmus.sample.variance import expected, neighbour_chances
from isthmus.shard import DrawContext

DRAWS = 2000
each_sampler = pytest.mark.parametrize("name", SAMPLERS)


class ManyDraws:
    """Many draws of a sampler on two workers; nodes are in the order of the workers."""

    def __init__(self, name: str):
        sampler, size = SAMPLERS[name], small_graph().num_nodes

        def work(context: DrawContext):
            z = aggregation(context)
            whole = context.whole
            drawn, read = [], torch.zeros(DRAWS, whole.num_halo)
            for step in range(DRAWS):
                edges = sampler.draw(context, step, z.row_norms)
                drawn.append(propagation(edges, "mean", size))
                read[step, edges.picked] = 1
            fetch = sampler.inclusion(context, z.row_norms)
            p = neighbour_chances(z, sampler) if isinstance(sampler, Neighbours) else None
            theory = None if p is None else expected(z, p).sum()
            return (
                torch.stack(drawn),
                propagation(whole, "mean", size),
                read,
                fetch,
                dense_chances(whole, p, size),
                theory,
            )

        parts = on_workers(small_graph(), 2, work)
        self.drawn = torch.cat([part[0] for part in parts], dim=1)  # [draws, N, N]
        self.whole = torch.cat([part[1] for part in parts])
        self.read = torch.cat([part[2] for part in parts], dim=1)  # [draws, all halo rows]
        self.fetch = torch.cat([part[3] for part in parts])
        self.p = None if parts[0][4] is None else torch.cat([part[4] for part in parts])
        self.theory = parts[0][5]

    @cached_property
    def errors(self) -> Tensor:
        """Return ‖Z̃ − Z‖² of each draw and node, [draws, N]."""
        return ((self.drawn - self.whole) @ rows_of(torch.arange(self.whole.shape[1]))).square().sum(2)


many_draws = cache(ManyDraws)


def as_often_as(happened: Tensor, p: Tensor) -> bool:
    """Return whether events [draws, M] happen with their probabilities: all M within their errors at 0.1 % risk."""
    limit = NormalDist().inv_cdf(1 - 1e-3 / (2 * p.numel()))
    assert 4 < limit < 5.5
    share, error = happened.double().mean(0), (p * (1 - p) / len(happened)).sqrt()
    return bool(((share - p).abs() <= limit * error + 1e-6).all())


@pytest.mark.parametrize("name", ["independent", "coupled"])
def test_edges_are_kept_with_their_probabilities(name):
    many = many_draws(name)
    edges = many.whole > 0
    assert torch.equal(many.p > 0, edges)
    assert 0 < int((many.p[edges] == 1).sum()) < int(edges.sum()) / 2  # both kinds are there
    assert as_often_as(many.drawn[:, edges] > 0, many.p[edges])


@each_sampler
def test_rows_are_fetched_with_their_probabilities(name):
    many = many_draws(name)
    assert as_often_as(many.read, many.fetch)


def test_probabilities_of_rows_follow_from_those_of_edges():
    """The probabilities are 1 − Π (1 − p), max p, Σ q = rate · h, and rate."""
    size = small_graph().num_nodes

    def work(context):
        z = aggregation(context)
        p = dense_chances(context.whole, neighbour_chances(z, SAMPLERS["independent"]), size)[
            :, context.whole.halo_nodes
        ]
        return p, {name: sampler.inclusion(context, z.row_norms) for name, sampler in SAMPLERS.items()}

    for p, found in on_workers(small_graph(), 3, work):
        torch.testing.assert_close(found["independent"], 1 - (1 - p).prod(0))
        torch.testing.assert_close(found["coupled"], p.max(0).values)
        assert (found["coupled"] <= found["independent"] + 1e-12).all()
        assert float(found["optimal-boundary"].sum()) == pytest.approx(0.3 * p.shape[1], rel=1e-6)
        assert (found["boundary"] == 0.3).all()
        torch.testing.assert_close(found["boundary-edge"], 1 - 0.7 ** (p > 0).sum(0).double())


@each_sampler
def test_no_entry_of_the_propagation_is_biased(name):
    many = many_draws(name)
    edges = many.whole > 0
    assert (many.drawn[:, ~edges] == 0).all()
    drawn, whole = many.drawn[:, edges], many.whole[edges]
    error = drawn.std(0) / DRAWS**0.5
    limit = NormalDist().inv_cdf(1 - 1e-3 / (2 * len(whole)))
    assert ((drawn.mean(0) - whole).abs() <= limit * error + 1e-9).all()
    assert float(drawn.mean()) == pytest.approx(float(whole.mean()), rel=0.02)


def test_small_links_of_bns_are_not_biased_either():
    """Each link of the ring has two rows: at rate 0.3, one of them is drawn in six of ten steps, else none."""

    def work(context):
        drawn = [propagation(SAMPLERS["boundary"].draw(context, step), "sum", 24) for step in range(DRAWS // 2)]
        return torch.stack(drawn).mean(0), propagation(context.whole, "sum", 24)

    for mean, whole in on_workers(ring_graph(), 4, work):
        torch.testing.assert_close(mean, whole, rtol=0, atol=0.3)


def test_coupling_changes_no_variance():
    one, other = many_draws("independent"), many_draws("coupled")
    assert float(other.errors.sum() / one.errors.sum()) == pytest.approx(1, abs=0.05)
    for many in (one, other):
        assert float(many.errors.sum(1).mean()) == pytest.approx(float(many.theory), rel=0.05)
    fewer = other.read.sum() / one.read.sum()
    assert fewer < 0.8
