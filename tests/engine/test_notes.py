"""Notes of runs that go well, but not as somebody may think."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from graphs import community_graph, cut
from torch import nn
from torch.nn.functional import cross_entropy

import isthmus
from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train


class Weighted(nn.Module):
    """Reads the weights, or as many own models do, takes them and is not given any."""

    def __init__(self, reads: bool):
        super().__init__()
        self.last, self.reads = nn.Linear(10, 4), reads

    def forward(self, graph, x):
        rows = graph.halo(x)
        source, target = graph.edge_index
        sent = rows[source] * graph.edge_attr[:, :1] if self.reads else rows[source]
        return self.last(torch.zeros_like(x).index_add(0, target, sent))


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    return cut(community_graph(), 2, "random", tmp_path_factory.mktemp("weights"))


def said(book, make=lambda: None):
    notes = []
    asked = TrainConfig(steps=2, eval_every=1)
    model = make()
    Hub(2).run(lambda transport: train(book, asked, transport, model=copy.deepcopy(model), note=notes.append))
    return notes


def test_weights_that_nobody_reads_are_said_once(book, tmp_path):
    assert [note.partition(",")[0] for note in said(book)] == [
        "community has edge attributes (2 column(s) of edge_attr)"
    ]
    assert "Weighted does not read them" in said(book, lambda: Weighted(False))[0]
    assert said(book, lambda: Weighted(True)) == []
    assert said(cut(replace(community_graph(), edge_attr=None), 2, "random", tmp_path)) == []


@pytest.mark.parametrize("reads", [False, True])
def test_loops_of_ones_own(book, capsys, reads):
    def work(transport):
        with isthmus.Worker(book, transport=transport) as worker:
            model = Weighted(reads)
            worker.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
            for _ in range(2):
                out = model(worker.graph, worker.x)
                worker.step(cross_entropy(out[worker.train_mask], worker.y[worker.train_mask]))

    Hub(2).run(work)
    assert capsys.readouterr().err.count("does not read them") == (0 if reads else 1)
