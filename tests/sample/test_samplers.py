"""Properties of every draw of every sampler: both ends of a link agree, transposes, attributes, norms, state."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from products import each_value, pairwise
from sample.scenes import (
    SAMPLERS,
    aggregation,
    dense_chances,
    matrix,
    on_workers,
    propagation,
    ring_graph,
    rows_of,
    small_graph,
)
from torch import Tensor

from isthmus.sample import Neighbours, OptimalBoundary, RowNorms, Schedule
from isthmus.sample.variance import neighbour_chances
from isthmus.shard import RowSubset

each_sampler = pytest.mark.parametrize("name", SAMPLERS)


@each_sampler
@pytest.mark.parametrize(
    ("workers", "graph"), [(2, "small"), (3, "directed"), pytest.param(4, "small", marks=pytest.mark.full), (4, "ring")]
)
def test_both_ends_of_every_link_agree(name, workers, graph):
    whole = {"small": small_graph(), "directed": small_graph(directed=True), "ring": ring_graph()}[graph]

    def work(context):
        row_norms, links = aggregation(context).row_norms, context.whole.links
        found = []
        for step in range(6):
            edges = SAMPLERS[name].draw(context, step, row_norms)
            for q in range(workers):  # places name the drawn rows among those of the whole link
                assert torch.equal(links.send_rows[q][edges.links.send_positions[q].long()], edges.links.send_rows[q])
            assert torch.equal(context.whole.halo_nodes[edges.picked], edges.halo_nodes)
            assert sum(edges.links.mirror_counts) == edges.num_halo == edges.halo.num_cols
            sent = [context.whole.nodes[rows.long()].tolist() for rows in edges.links.send_rows]
            read = [nodes.tolist() for nodes in edges.links.mirrors.split(edges.halo_nodes)]
            found.append((sent, read))
        return found

    results = on_workers(whole, workers, work)
    crossed = dict.fromkeys(product(range(workers), repeat=2), 0)
    for owner, reader in crossed:
        for at_owner, at_reader in zip(results[owner], results[reader], strict=True):
            assert at_owner[0][reader] == at_reader[1][owner]
            crossed[owner, reader] += len(at_reader[1][owner])
    assert sum(crossed.values()) > 0
    if graph == "ring":
        assert crossed[0, 2] == crossed[2, 0] == crossed[1, 3] == crossed[3, 1] == 0


@pytest.mark.parametrize(
    *each_value(name=["whole", "boundary", "optimal-boundary", "boundary-edge"], norm=["gcn", "mean", "sum"])
)
def test_some_of_the_targets(name, norm):
    """A subset of targets gives their rows of P, and those columns of its transpose."""

    def work(context):
        whole, dtype = context.whole, torch.float64
        edges = whole if name == "whole" else SAMPLERS[name].draw(context, 0, aggregation(context).row_norms)
        rows = torch.tensor([1, 4, 5, 11])
        some = RowSubset(edges, rows, edges.norm(norm, dtype).add_self)
        some = RowSubset(edges, rows, edges.norm(norm, dtype).add_self, like=some)
        torch.testing.assert_close(propagation(some, norm, 48), propagation(edges, norm, 48)[rows])
        grad = torch.zeros(edges.num_inner, 3, dtype=dtype)
        grad[rows] = rows_of(rows)[:, :3]
        home, expected = (torch.empty(edges.num_halo, 3, dtype=dtype) for _ in range(2))
        some.spread_halo(grad[rows], some.norm(norm, dtype), home)
        edges.spread_halo(grad, edges.norm(norm, dtype), expected)
        torch.testing.assert_close(home, expected)
        inner = some.spread_inner(grad[rows], some.norm(norm, dtype))
        torch.testing.assert_close(inner, edges.spread_inner(grad, edges.norm(norm, dtype)))

    on_workers(small_graph(directed=True), 3, work)


@pytest.mark.parametrize(*pairwise(name=list(SAMPLERS), norm=["gcn", "mean", "sum"], directed=[False, True]))
def test_spreading_is_the_transpose_of_aggregating(name, norm, directed):
    def work(context):
        row_norms = aggregation(context, norm).row_norms
        for step in range(4):
            edges = SAMPLERS[name].draw(context, step, row_norms)
            scale = edges.norm(norm, torch.float64)
            x, y = rows_of(edges.nodes, 1), rows_of(edges.nodes, 2)
            halo = rows_of(edges.halo_nodes, 3)
            assert _equal((edges.aggregate_inner(x, scale) * y).sum(), (x * edges.spread_inner(y, scale)).sum())
            out, back = torch.zeros_like(x), torch.full_like(halo, torch.nan)
            edges.aggregate_halo(halo, scale, out)
            edges.spread_halo(y, scale, back)
            assert _equal((out * y).sum(), (halo * back).sum())
            for csr, turned, weight, turned_weight in (
                (edges.inner, edges.inner_out, edges.inner_weight, edges.inner_out_weight),
                (edges.halo, edges.halo_out, edges.halo_weight, edges.halo_out_weight),
            ):
                assert torch.equal(matrix(csr, weight), matrix(turned, turned_weight).T)
        return True

    assert all(on_workers(small_graph(directed), 3, work))


def _equal(one: Tensor, other: Tensor) -> bool:
    return float((one - other).abs()) <= 1e-12 * max(1.0, float(one.abs()))


@each_sampler
def test_rate_one_is_the_whole_graph(name):
    sampler = replace(SAMPLERS[name], rate=1.0)

    def work(context):
        row_norms = aggregation(context).row_norms
        return all(
            sampler.draw(context, step, known) is context.whole for step in range(3) for known in (None, row_norms)
        )

    assert all(on_workers(small_graph(), 3, work))


@each_sampler
@pytest.mark.parametrize("directed", [False, True])
def test_edge_attributes_follow_their_edges(name, directed):
    def work(context):
        row_norms = aggregation(context).row_norms
        for step in range(4):
            edges = SAMPLERS[name].draw(context, step, row_norms)
            sources, targets = edges.edge_index
            ids = torch.cat([edges.nodes, edges.halo_nodes])
            assert torch.equal(edges.edge_attr.long(), torch.stack([ids[sources], edges.nodes[targets]], dim=1))
            assert len(targets) == edges.inner.num_edges + edges.halo.num_edges > 0
        return True

    assert all(on_workers(small_graph(directed), 3, work))


# Sizes


def by_theorem_2(score: Tensor, budget: float) -> Tensor:
    """Return p of one node's neighbours with the scores √a ‖y‖: sorted, the largest k that satisfies theorem 2 (eq.
    19)."""
    order, count = score.argsort(), len(score)
    ascending, p = score[order], torch.ones_like(score)
    for k in range(count, 0, -1):
        left = budget + k - count
        if left <= float(ascending[:k].sum() / ascending[k - 1]):
            p[order[:k]] = left * ascending[:k] / ascending[:k].sum()
            break
    return p


@pytest.mark.parametrize("norm", ["mean", "gcn"])
def test_edges_go_by_the_sizes_of_rows(norm):
    """Theorem 2 holds for every node, with a = 1.1 for inner neighbours; without norms, p = ε."""
    sampler, size = Neighbours(0.3), small_graph().num_nodes

    def work(context):
        z, whole = aggregation(context, norm), context.whole
        p = dense_chances(whole, neighbour_chances(z, sampler), size)
        y = propagation(whole, norm, size).clone()
        y[torch.arange(whole.num_inner), whole.nodes] = 0  # self loops are not drawn
        length = rows_of(torch.arange(size)).norm(dim=1)
        a = torch.ones(size, dtype=torch.float64)
        a[whole.nodes] = 1.1
        blind = dense_chances(whole, neighbour_chances(replace(z, row_norms=RowNorms(0, {}, {})), sampler), size)
        return p, blind, y * length * a.sqrt()

    for p, blind, scores in on_workers(small_graph(), 3, work):
        for found, uniform, score in zip(p, blind, scores, strict=True):
            linked = score > 0
            want = by_theorem_2(score[linked], 0.3 * int(linked.sum()))
            torch.testing.assert_close(found[linked], want, rtol=1e-5, atol=1e-9)
            torch.testing.assert_close(uniform[linked], torch.full_like(want, 0.3))


def test_rows_go_by_their_sizes_and_readers():
    """Theorem 2 holds over a worker's halo: q ∝ √(Σ_i P_ij²) ‖x_j‖, cut at 1, Σ q = rate · h; or q = rate at first."""
    sampler, size = OptimalBoundary(0.3), small_graph().num_nodes

    def work(context):
        z, whole = aggregation(context, "gcn"), context.whole
        column = propagation(whole, "gcn", size)[:, whole.halo_nodes].norm(dim=0)
        value = column * rows_of(whole.halo_nodes).norm(dim=1)
        return sampler.inclusion(context, z.row_norms), value, sampler.inclusion(context, None)

    for q, value, blind in on_workers(small_graph(), 3, work):
        torch.testing.assert_close(q, by_theorem_2(value, 0.3 * len(value)), rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(blind, torch.full_like(blind, 0.3), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    *pairwise(name=["independent", "coupled", "optimal-boundary", "boundary"], delay=[0, 2], saved_at=[3, 4, 7])
)
def test_a_restored_state_draws_the_same_graphs(name, delay, saved_at):
    sampler = SAMPLERS[name] if name == "boundary" else replace(SAMPLERS[name], refresh=3)

    def run(schedule: Schedule, first: int, last: int) -> list[Tensor]:
        drawn = []
        for step in range(first, last):
            schedule.begin(step)
            schedule.at(step + delay)  # a pipelined trainer asks ahead
            drawn.append(matrix(schedule.at(step).inner, schedule.at(step).inner_weight))
            drawn.append(propagation(schedule.at(step), "mean", small_graph().num_nodes))
            schedule.record(
                rows_of(schedule.context.whole.nodes, seed=step), None, "mean"
            )  # rows change from step to step
        return drawn

    def work(context):
        through, begun, resumed = (Schedule(sampler, context, delay) for _ in range(3))
        want = run(through, 0, 12)[2 * saved_at :]
        run(begun, 0, saved_at)
        resumed.restore({key: tensor.clone() for key, tensor in begun.state().items()})
        for due in range(saved_at, saved_at + delay):
            resumed.at(due)  # as the channels under way ask for theirs
        got = run(resumed, saved_at, 12)
        for schedule in (through, begun, resumed):
            schedule.drain()
        return all(torch.equal(one, other) for one, other in zip(want, got, strict=True))

    assert all(on_workers(small_graph(), 2, work))


def test_sizes_learned_in_training_change_the_draws():
    def work(context):
        schedule = Schedule(Neighbours(0.3, refresh=1), context, 0)
        schedule.begin(0)
        blind = schedule.at(0)
        schedule.record(rows_of(context.whole.nodes), None, "mean")
        schedule.begin(1)
        known = Neighbours(0.3, refresh=1).draw(context, 1, aggregation(context).row_norms)
        same = torch.equal(schedule.at(1).halo_weight, known.halo_weight)
        return same, set(blind.halo_weight.tolist()), len(set(known.halo_weight.tolist()))

    for same, blind, weights in on_workers(small_graph(), 2, work):
        assert same
        assert blind == {1 / 0.3}
        assert weights > 5
