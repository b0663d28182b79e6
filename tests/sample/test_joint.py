"""Joint batches: what the papers call unbiased is unbiased, over many draws at once."""

from __future__ import annotations

import pytest
import torch
from graphs import community_graph

from isthmus.comm import Hub
from isthmus.kernels import stream
from isthmus.sample import Clusters, LayerWise, Saint, Scene, Structure

DRAWS, SIZE, ERRORS = 10_000, 25, 4


def scene(graph=None, size=SIZE):
    graph = graph or community_graph(40, seed=3)
    train = torch.from_numpy(graph.train_mask[:, 0]).nonzero().flatten()
    return Scene(Structure.of_graph(graph), train, lambda step: train[:10], 2, size, 5, False)


def started(sampler, size=SIZE):
    return Hub(1).run(lambda transport: sampler.start(scene(size=size), transport))[0]


def within(samples, wanted):
    """Assert that the mean over draws [draws, …] is what it should be, up to 4 standard errors."""
    error = samples.std(0) / len(samples) ** 0.5
    assert bool(((samples.mean(0) - wanted).abs() <= ERRORS * error + 1e-12).all())


def dense(draw):
    """How much every edge counts in a batch that has it, [N, N], and every node in the loss, [N]."""
    whole = draw.induced(torch.arange(draw.scene.structure.num_rows))
    counts, n = draw.counts(whole), len(whole.nodes)
    weights = torch.zeros(n, n, dtype=torch.float64)
    weights[whole.nodes[whole.csr.edge_rows], whole.nodes[whole.csr.indices.long()]] = counts.edges
    rows = torch.zeros(n, dtype=torch.float64)
    if counts.rows is not None:
        rows[whole.nodes[: whole.seeds]] = counts.rows
    return weights, rows


def present(draw):
    """Which nodes are in the batch of each step, [DRAWS, N]."""
    found = torch.zeros(DRAWS, draw.scene.structure.num_rows, dtype=torch.float64)
    for step in range(DRAWS):
        found[step, draw.nodes(step)] = 1
    return found


@pytest.mark.parametrize("sampler", [Clusters(7, 3, "graph"), Saint("node"), Saint("edge")], ids=str)
def test_sums_over_drawn_neighbours_are_right_on_average(sampler):
    """Given that node v is in the batch, the sum over its neighbours in it is on average that over all of them."""
    draw = started(sampler)
    here, (weights, rows) = present(draw), dense(draw)
    x = torch.linspace(-1.0, 2.0, len(weights), dtype=torch.float64)
    sums, whole = here @ (weights * x).T, (weights > 0).double() @ x
    for v in range(len(weights)):
        within(sums[here[:, v] > 0, v], whole[v])
    if rows.any():  # the loss of a batch is on average that of all training nodes
        within(here @ (rows * x), x[draw.scene.train].sum())


def test_counted_chances_are_those_in_closed_form():
    """Counted in many subgraphs, the chances of nodes and pairs are the computed ones, up to 4 standard errors."""
    for kind in ("node", "edge"):
        exact, counted = started(Saint(kind)), started(Saint(kind, coverage=1000))
        found = exact.induced(torch.arange(exact.scene.structure.num_rows))
        for chance, share in zip(exact.chances(found), counted.chances(found), strict=True):
            draws = 1000 * len(found.nodes) / float(exact.chances(found)[0].sum())
            error = (chance * (1 - chance) / draws).sqrt()
            assert bool(((share - chance).abs() <= ERRORS * error + 2 / draws).all())


@pytest.mark.parametrize("sampler", [LayerWise(6), LayerWise(6, dependent=False)], ids=str)
def test_layers_are_right_on_average(sampler):
    """Every node counts once on average, whether the layer above reads it or any."""
    draw = started(sampler)
    frontier = draw.scene.seeds(0)
    rows, _ = draw.scene.structure.pattern.take(frontier)
    counts = torch.zeros(DRAWS, draw.scene.structure.num_rows, dtype=torch.float64)
    for step in range(DRAWS):
        picked = draw.pick(frontier, rows, stream(9, step))
        counts[step, picked.nodes] = picked.counts
    among = rows.indices.long().unique() if sampler.dependent else torch.arange(counts.shape[1])
    within(counts[:, among], 1.0)
