"""Every cut gives what one process gives, on a graph with everything that is awkward; and sends no row for nothing."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from exactly import assert_equal_runs, config, run
from graphs import cut
from products import pairwise
from torch import nn

from isthmus.comm import Hub
from isthmus.engine import train
from isthmus.graph.graph import Graph
from isthmus.local import LocalGraph, Policy, Savings
from isthmus.partition import partition
from isthmus.recipes import find

NODES = 48
CUTS = {"edge": "blocks", "cover": "blocks", "ebv": "ebv", "hep": "hep", "random": "random"}  # the last three: vertex
BOTH = [True, False]
SPREAD = [(1, 1), (2, 2), (3, 3), (4, 4), (4, 2)]  # parts and workers


def awkward(directed: bool) -> Graph:
    """Nodes that are only read, that only read, without edges; self loops; no edge between two of four blocks."""
    draw = np.random.default_rng(0)
    linked = draw.random((NODES, NODES)) < 0.12  # [target, source]
    linked[:6] = linked[:, 6:12] = False
    linked[-3:] = linked[:, -3:] = False
    linked[:12, 36:] = linked[36:, :12] = False
    linked |= np.zeros_like(linked) if directed else linked.T
    np.fill_diagonal(linked, directed & (np.arange(NODES) % 7 == 0))
    x = draw.normal(size=(NODES, 6))
    kind = draw.integers(3, size=(NODES, 1))
    return Graph(
        indptr=np.concatenate([[0], np.cumsum(linked.sum(1))]).astype(np.int64),
        indices=np.nonzero(linked)[1].astype(np.int32),
        x=x,
        y=(x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0.5),
        num_classes=3,
        name="awkward",
        symmetric=not directed,
        **{name: kind == k for k, name in enumerate(("train_mask", "val_mask", "test_mask"))},
    )


class Sums(nn.Module):
    """Several linear aggregations of the same rows, each with a weight of its own, as R-GCN has them by relation."""

    def __init__(self):
        super().__init__()
        draw, shapes = torch.Generator().manual_seed(0), [(8, 6), (8, 8), (3, 8)]
        self.weights = nn.ParameterList(
            0.3 * torch.randn(4, *shape, dtype=torch.float64, generator=draw) for shape in shapes
        )

    def forward(self, graph, x):
        for weight in self.weights:
            x = graph.dropout(x, 0.5 if self.drops else 0.0, relu=weight is not self.weights[0])
            own, total, mean, gcn = weight
            by_norm = {"sum": total / 8, "mean": mean, "gcn": gcn}
            x = x @ own.t() + sum(graph.propagate(x, one, norm) for norm, one in by_norm.items())
        return x


def made(model, dropout):
    sums = Sums() if model == "sums" else None
    if sums is not None:
        sums.drops = dropout > 0
    return config("gcn" if sums else model, dropout), sums


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Runs of one process, each once."""

    @cache
    def run_alone(model, dropout, directed):
        asked, own = made(model, dropout)
        book = cut(awkward(directed), 1, "blocks", tmp_path_factory.mktemp("one"))
        return run(book, asked, model=own)

    return run_alone


def parts_of(how, count, directed, folder):
    where = how if how in ("edge", "cover") else "vertex"
    return partition(awkward(directed), count, CUTS[how], cut=where, out=folder / "parts")


@pytest.mark.parametrize(
    *pairwise(
        how=[*CUTS], spread=SPREAD, model=["gcn", "sage", "gat", "sums"], dropout=[0.0, 0.5], directed=[True, False]
    )
)
def test_every_cut_is_exact(tmp_path, alone, how, spread, model, dropout, directed):
    (asked, own), (parts, workers) = made(model, dropout), spread
    book = parts_of(how, parts, directed, tmp_path)
    if parts == workers:
        assert_equal_runs(alone(model, dropout, directed), run(book, asked, model=own))
        return
    losses = []
    watch = {"watch": lambda line: losses.append(line["loss"])}
    Hub(workers).run(lambda t: train(book, asked, t, model=made(model, dropout)[1], **(watch if not t.rank else {})))
    expected = alone(model, dropout, directed)[0]
    torch.testing.assert_close(torch.tensor(losses, dtype=torch.float64), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("how", "model"), [("edge", "gat"), ("cover", "gcn"), ("hep", "gat"), ("ebv", "sage")])
def test_resumed_bit_for_bit(tmp_path, how, model):
    book = parts_of(how, 3, True, tmp_path)

    def losses(steps, out, resume=False):
        found, asked = [], config(model, 0.5, steps=steps, eval_every=5)

        def work(transport):
            watch = (lambda line: found.append(line["loss"])) if transport.rank == 0 else None
            train(book, asked, transport, out=tmp_path / out, resume=resume, watch=watch)

        Hub(3).run(work)
        return found

    assert losses(5, "parted") + losses(10, "parted", resume=True) == losses(10, "whole")


@pytest.mark.parametrize("how", CUTS)
def test_as_many_rows_cross_as_the_book_says(tmp_path, how):
    """In each pass: a mirror that is only read sends no sum, and one that only edges lead to gets no row."""
    book = parts_of(how, 4, True, tmp_path)
    policy = Policy(Savings(read_rows=False, relay=False, cover=how == "cover"))

    def work(transport):
        graph = LocalGraph.from_part(book.part(transport.rank), transport, book.symmetric, policy=policy)
        graph.runtime.begin(0)
        x = torch.ones(graph.num_rows, 3, requires_grad=True)
        graph.runtime.backward(graph.aggregate(x, "sum")[: graph.num_inner].sum())
        return {way: sum(n for (_, label, _), n in transport.ledger.rows.items() if label.startswith(way))
                for way in ("forward", "backward")}  # fmt: skip

    sent = Hub(4).run(work)
    assert [sum(one[way] for one in sent) for way in ("forward", "backward")] == [book.quality["volume"]] * 2


def test_errors_that_are_fed_back_stay_with_the_sender(tmp_path):
    book = parts_of("ebv", 3, True, tmp_path)
    fed, exact = (run(book, config("gcn"), find("distgnn").policy({"staleness": 0, **given}))[0]
                  for given in ({"bits": 8, "feedback": True}, {}))  # fmt: skip
    assert 0 < float((fed - exact).abs().max()) < 0.01
