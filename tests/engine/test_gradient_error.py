"""The distance of a step's gradients from the exact ones, against those of one process at the same weights."""

from __future__ import annotations

import pytest
import torch
from graphs import community_graph, cut

from isthmus.comm import Hub
from isthmus.engine import TrainConfig
from isthmus.engine.prepare import prepare
from isthmus.engine.step import train_step
from isthmus.nn import ModelConfig
from isthmus.recipes import find

STEPS = 4
CASES = {
    "pipegcn": {"staleness": 2},
    "isthmus": {"rate": 0.3, "guard": "off"},
    "psc-gcn": {"rate": 0.3, "least": 0},
    "bns": {"rate": 0.3},
    "sancus-e": {"bound": 2},
}


def steps_of(book, recipe, options, probe, **config):
    """Return for each step the weights before it, the gradients, and the distance that was measured."""
    asked = TrainConfig(ModelConfig(hidden=8, dropout=0.5), dtype="float64", lr=0.1, seed=3, **config)

    def work(transport):
        views, model, optimizer = prepare(book, asked, find(recipe).policy(options), transport)
        found = []
        for step in range(STEPS):
            before = {name: value.clone() for name, value in model.state_dict().items()}
            train_step(model, optimizer, views.train, book.train[0], step, probe)
            found.append((before, flat(model), views.train.graph.runtime.gradient_error))
        views.train.graph.runtime.drain()
        return found

    return Hub(book.num_parts).run(work)


def flat(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def exact_gradient(book, weights, step, **config):
    """Return the gradient of one process with the whole graph."""
    asked = TrainConfig(ModelConfig(hidden=8, dropout=0.5), dtype="float64", seed=3, **config)

    def work(transport):
        views, model, optimizer = prepare(book, asked, find("exact").policy(), transport)
        model.load_state_dict(weights)
        train_step(model, optimizer, views.train, book.train[0], step)
        return flat(model)

    return Hub(1).run(work)[0]


@pytest.mark.parametrize("recipe", CASES)
def test_it_is_the_distance_from_one_process(tmp_path, recipe):
    graph = community_graph(90)
    book, alone = (cut(graph, parts, "blocks", tmp_path / str(parts)) for parts in (3, 1))
    config = {"accumulate": 2} if recipe == "pipegcn" else {}
    workers = steps_of(book, recipe, CASES[recipe], True, **config)
    for step, (weights, gradient, error) in enumerate(workers[0]):
        exact = exact_gradient(alone, weights, step, **config)
        assert error == pytest.approx(float((gradient - exact).norm() / exact.norm()), rel=1e-9, abs=1e-12)
        assert all(other[step][2] == error for other in workers)
    assert max(error for _, _, error in workers[0]) > 1e-3


@pytest.mark.parametrize("recipe", ["pipegcn", "isthmus"])
def test_measuring_changes_nothing(tmp_path, recipe):
    book = cut(community_graph(90), 2, "blocks", tmp_path)
    one, other = (steps_of(book, recipe, CASES[recipe], probe)[0] for probe in (True, False))
    for (_, probed, _), (_, plain, error) in zip(one, other, strict=True):
        assert torch.equal(probed, plain)
        assert error is None
