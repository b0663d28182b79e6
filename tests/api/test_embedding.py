"""`worker.embedding`: learnt rows in a loop of one's own are those of one process, and go on from checkpoints."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import community_graph, cut
from torch.nn.functional import cross_entropy

import isthmus
from isthmus.comm import Hub
from isthmus.errors import InputError

GRAPH = replace(community_graph(), x=np.empty((120, 0), np.float32), edge_attr=None)
Y = torch.from_numpy(GRAPH.y)
DRAWS = [torch.from_numpy(np.random.default_rng(k).integers(120, size=(2, 20))) for k in range(8)]  # with repetitions


def trained(book, workers, out=None, steps=range(8), optimizer="adam"):
    """Losses of a linear model on learnt rows; of each step's two halves every worker takes its share."""

    def work(transport):
        with isthmus.Worker(book, transport=transport, dtype="float64") as worker:
            emb = worker.embedding("nodes", 5, lr=0.05, optimizer=optimizer)
            net = torch.nn.Linear(5, 4).double()
            with torch.no_grad():
                net.weight.copy_(torch.arange(20.0).view(4, 5) / 20)
                net.bias.zero_()
            worker.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
            if out is not None:
                assert worker.restore(out) == steps[0]
            losses = []
            for step in steps:
                net.zero_grad()
                nodes = (
                    DRAWS[step].flatten()
                    if worker.size == 1
                    else DRAWS[step][worker.rank]
                    if worker.rank < 2
                    else Y[:0]
                )
                loss = cross_entropy(net(emb(nodes)), Y[nodes], reduction="sum")
                losses.append(worker.step(loss, weight=len(nodes)))
            if out is not None:
                worker.save(out)
            return losses

    return Hub(workers).run(work)[0]


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_any_number_of_workers(tmp_path, optimizer):
    book = cut(GRAPH, 3, "random", tmp_path)
    alone = trained(book, 1, optimizer=optimizer)
    for workers in (2, 3):  # the third has rows, but reads none
        assert np.allclose(trained(book, workers, optimizer=optimizer), alone, rtol=0, atol=1e-12)


def test_checkpoints_of_another_number_of_workers(tmp_path):
    book = cut(GRAPH, 3, "random", tmp_path)
    alone = trained(book, 1)
    first = trained(book, 3, tmp_path / "run", range(4))
    second = trained(book, 2, tmp_path / "run", range(4, 8))
    assert np.allclose(first + second, alone, rtol=0, atol=1e-12)


def test_refusals(tmp_path):
    with (
        isthmus.Worker(cut(GRAPH, 1, "random", tmp_path)) as worker,
        pytest.raises(InputError, match="unknown optimizer"),
    ):
        worker.embedding("nodes", 4, optimizer="lion")
