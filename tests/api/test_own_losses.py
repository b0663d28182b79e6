"""Losses that are no plain means in a loop of one's own, on parts that differ in their classes."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from graphs import community_graph, cut
from torch import nn
from torch.nn import functional

import isthmus
from isthmus.comm import Hub, Where
from isthmus.engine import TrainConfig, train
from isthmus.errors import InputError
from isthmus.partition import Book

WEIGHTS = torch.tensor([0.1, 1.0, 4.0, 0.5], dtype=torch.float64)


class ByData(nn.Module):
    """A model in the form forward(data)."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(10, 4)

    def forward(self, data):
        return self.last(data.edge_index.aggregate(data.x))


def trained(book: Book, how: str) -> tuple[list[float], torch.Tensor]:
    def work(transport):
        with isthmus.Worker(book, dtype="float64", transport=transport) as worker:
            model = ByData().double()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter))
            optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
            worker.prepare(model, optimizer)
            losses = []
            for _ in range(20):
                optimizer.zero_grad()
                out, y = model(worker.data)[worker.train_mask], worker.y[worker.train_mask]
                total = functional.cross_entropy(out, y, WEIGHTS, reduction="sum", label_smoothing=0.1)
                divisor = WEIGHTS[y].sum()
                loss = (
                    worker.step(total, weight=divisor)
                    if how == "weight"
                    else worker.step(total / divisor, rows=divisor)
                )
                losses.append(loss)
            scores = worker.evaluate(model)
            return losses, torch.cat([p.detach().flatten() for p in model.parameters()]), scores

    return Hub(book.num_parts).run(work)[0]


@pytest.mark.parametrize("how", ["weight", "rows"])
def test_the_divisor_of_all_workers(tmp_path, how):
    graph = community_graph()
    alone, together = (trained(cut(graph, parts, "blocks", tmp_path / how), how) for parts in (1, 4))
    np.testing.assert_allclose(together[0], alone[0], rtol=0, atol=1e-10)
    torch.testing.assert_close(together[1], alone[1], rtol=0, atol=1e-10)
    assert together[2] == pytest.approx(alone[2])


def test_a_metric_of_the_script(tmp_path):
    """A function that only this script has, of all workers' rows at once."""
    book = cut(community_graph(), 3, "blocks", tmp_path)

    def spread(logits, y):
        assert len(logits) == len(y)
        return float(logits.max(1).values.std())

    def work(transport):
        with isthmus.Worker(book, dtype="float64", metric=spread, transport=transport) as worker:
            model = ByData().double()
            worker.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
            everyone = torch.cat(
                transport.all_gather(worker.predict(model)[worker.test_mask], Where("all", "reduce", 0))
            )
            return worker.evaluate(model)["test"], float(everyone.max(1).values.std())

    for score, want in Hub(3).run(work):
        assert score == pytest.approx(want, abs=1e-12)


SUMS = {
    "sum": (lambda out, y: functional.cross_entropy(out, y, reduction="sum"), "is a sum over this worker's rows"),
    "of rows": (lambda out, y: functional.cross_entropy(out, y, reduction="none").sum(), "is a sum over this worker's"),
    "with a penalty": (
        lambda out, y: 0.5 * functional.nll_loss(out, y, reduction="sum") + out.pow(2).mean(),
        "is a sum",
    ),
    "weights": (lambda out, y: functional.cross_entropy(out, y, WEIGHTS), "has class weights"),
    "smoothed": (lambda out, y: functional.cross_entropy(out, y, WEIGHTS, label_smoothing=0.1), "has class weights"),
    "mse": (lambda out, y: functional.mse_loss(out[:, 0], y.double(), reduction="sum"), "is a sum"),
    "well": (lambda out, y: functional.cross_entropy(out, y) + 0.1 * out.pow(2).sum() / len(y), None),
    "divided": (lambda out, y: functional.cross_entropy(out, y, reduction="sum") / len(y), None),
}


@pytest.mark.parametrize("name", SUMS)
def test_losses_that_are_no_means_are_refused(tmp_path, name):
    loss, words = SUMS[name]
    book = cut(community_graph(), 2, "blocks", tmp_path)

    def work(transport):
        with isthmus.Worker(book, dtype="float64", transport=transport) as worker:
            model = ByData().double()
            worker.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
            worker.step(loss(model(worker.data)[worker.train_mask], worker.y[worker.train_mask]))

    if words is None:
        Hub(2).run(work)
    else:
        with pytest.raises(InputError, match=words):
            Hub(2).run(work)


class Centred(nn.Module):
    def __init__(self, own):
        super().__init__()
        self.last, self.own = nn.Linear(10, 4), own

    def forward(self, graph, x):
        x = self.last(graph.aggregate(x))
        return x - (x.mean(0) if self.own else graph.mean(x)) + x.mean(1, keepdim=True)


@pytest.mark.parametrize("own", [True, False])
def test_a_mean_over_a_workers_own_rows_is_said(tmp_path, own):
    book, told = cut(community_graph(), 2, "blocks", tmp_path), []
    model = Centred(own).double()
    asked = TrainConfig(steps=1, dtype="float64", edge_weights="none")
    Hub(2).run(lambda transport: train(book, asked, transport, model=copy.deepcopy(model), note=told.append))
    assert any("takes a mean down the rows of x" in one and "graph.mean(x) sees" in one for one in told) == own


def test_one_of_the_two(tmp_path):
    with isthmus.Worker(cut(community_graph(), 1, "blocks", tmp_path), dtype="float64") as worker:
        model = ByData().double()
        worker.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        with pytest.raises(InputError, match="rows= is for a mean, weight= for a total"):
            worker.step(model(worker.data).sum(), rows=3, weight=2)
        worker.graph.runtime.begin(0)


def test_what_data_does_not_have_is_named(tmp_path):
    with isthmus.Worker(cut(community_graph(), 1, "blocks", tmp_path)) as worker:
        with pytest.raises(InputError, match=r"the model reads data\.adj_t: a worker's data has"):
            getattr(worker.data, "adj_t")  # noqa: B009
        assert worker.data.num_nodes == 120
