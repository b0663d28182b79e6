"""Joint batches: what the papers call unbiased is unbiased, over many draws at once."""

from __future__ import annotations

import pytest
import torch
from graphs import community_graph

from isthmus.comm import Hub
from isthmus.sample import Clusters, Scene, Structure

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


@pytest.mark.parametrize("sampler", [Clusters(7, 3, "graph")], ids=str)
def test_sums_over_drawn_neighbours_are_right_on_average(sampler):
    """Given that node v is in the batch, the sum over its neighbours in it is on average that over all of them."""
    draw = started(sampler)
    here, (weights, _) = present(draw), dense(draw)
    x = torch.linspace(-1.0, 2.0, len(weights), dtype=torch.float64)
    sums, whole = here @ (weights * x).T, (weights > 0).double() @ x
    for v in range(len(weights)):
        within(sums[here[:, v] > 0, v], whole[v])
