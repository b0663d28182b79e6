"""The guard against its literal version, the error that it goes by against the truth, and its limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import community_graph, cut
from oracle.guard import Decisions, Guarded
from oracle.harness import LR, exact_losses, first_weights, relative, run
from oracle.partition_parallel import Training
from oracle.places import DIRECTED, THREE, TWO
from safetensors.torch import load_file

from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.engine.prepare import prepare
from isthmus.engine.step import train_step
from isthmus.errors import InputError
from isthmus.local import Guard
from isthmus.local.guard import EXACT, Controller
from isthmus.nn import ModelConfig
from isthmus.recipes import find

STEPS, GUARDED = 30, {"guard": "on"}  # it acts on what it saw for some steps


@pytest.mark.parametrize("seed", range(5))
def test_decisions(seed):
    draw = np.random.default_rng(seed)
    errors = np.exp(1.2 * np.sin(np.arange(600) / 15) + 0.3 * draw.normal(size=600)) * 0.05
    literal, controller = Decisions(0.05), Controller(Guard(0.05))
    for error in errors:
        controller.observe({"0 forward": 0.0, "1 forward": error, "1 backward": 9.0})
        assert literal.hear(error) == (controller.level == EXACT)
    assert controller.patience > 10


@pytest.mark.parametrize(
    ("place", "staleness", "limit"), [(TWO, 1, 0.06), (THREE, 2, 0.25), (DIRECTED, 1, 0.03)], ids=str
)
def test_agrees_with_the_algorithm(parts, place, staleness, limit):
    graph, book, links = parts(place)
    oracle = Guarded(links, staleness, limit)
    narrow = place.savings == "inherited"
    about = graph, place.model, first_weights(graph, place.model), LR, oracle
    want = np.array(Training(*about, narrow).run(STEPS))
    assert set(oracle.exact) == {True, False}
    options = {"staleness": staleness, "savings": place.savings, "guard": "on", "guard_error": limit}
    got, _ = run(book, place.model, find("pipegcn").policy(options), STEPS)
    assert relative(got, want) <= 1e-10


@pytest.mark.parametrize("recipe", ["pipegcn", "psc-gcn", "isthmus"])
def test_rows_that_never_become_safe_are_exact(parts, recipe):
    graph, book, _ = parts(TWO)
    got, _ = run(book, "gcn", find(recipe).policy({"guard": "on", "guard_error": 1e-9}), 12)
    np.testing.assert_allclose(got, exact_losses(graph, "gcn", 12), rtol=0, atol=1e-10)


def lines_of(book, recipe, options, steps=30, **config):
    """The lines of a run with a probe at every step, as every worker saw them."""
    asked = TrainConfig(ModelConfig(hidden=16), steps=steps, eval_every=99, probe_every=1, lr=0.02, **config)
    seen = [[] for _ in range(book.num_parts)]
    policy = find(recipe).policy(options)
    Hub(book.num_parts).run(lambda t: train(book, asked, t, policy=policy, watch=seen[t.rank].append))
    return seen


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    return cut(community_graph(600, degree=12.0), 3, "random", tmp_path_factory.mktemp("crowd"))


CASES = [
    ("pipegcn", {}),
    ("pipegcn", {"smooth_features": 0.8, "staleness": 2, "bits": 8}),
    ("psc-gcn", {"rate": 0.5, "least": 0}),
    ("isthmus", {"rate": 0.5, "guard": "off"}),
    ("isthmus", {"rate": 0.5, "bits": 4, "guard_error": 0.2}),
    ("sancus-e", {"bound": 2}),
    ("exact", {"bits": 8}),
]


@pytest.mark.parametrize(("recipe", "options"), CASES)
def test_the_estimate_is_near_the_truth(crowd, monkeypatch, recipe, options):
    monkeypatch.setattr("isthmus.local.watch.ROWS", 64)  # of 200 rows
    compared = 0
    for line in lines_of(crowd, recipe, options, cut="edge")[0]:  # covers send sums, of which a probe says nothing
        for place, truth in line["error"].items():
            if place in line["row_error"] and line.get("guard", {}).get("level") != "exact" and truth > 1e-3:
                assert 1 / 1.5 <= line["row_error"][place] / truth <= 1.5, (line["step"], place)
                compared += 1
    assert compared >= 15


def test_all_workers_decide_alike(crowd):
    options = {"rate": 0.3, "guard_error": 0.3}
    each = [[(line["row_error"], line["guard"]) for line in lines] for lines in lines_of(crowd, "isthmus", options)]
    assert each[0] == each[1] == each[2]
    assert {guard["level"] for _, guard in each[0]} == {"exact", "lossy"}


@pytest.mark.parametrize(("dropout", "input_dropout", "judged"), [(0.5, 0, {1}), (0, 0, {1, 2}), (0.5, 0.2, {0, 1, 2})])
def test_masks_alone_do_not_frighten_it(crowd, dropout, input_dropout, judged):
    """Rows made of dropped-out ones differ by their masks at each step; the guard goes by others, if there are any."""
    shape = ModelConfig(layers=3, hidden=8, dropout=dropout, input_dropout=input_dropout)
    policy = find("pipegcn").policy(GUARDED)

    def work(transport):
        views, model, optimizer = prepare(crowd, TrainConfig(shape), policy, transport)
        for step in range(3):
            train_step(model, optimizer, views.train, crowd.train[0], step)
        views.train.graph.runtime.drain()
        return views.train.graph.runtime.watch

    for watch in Hub(3).run(work):
        assert {int(name.split()[0]) for name in watch.telling if name.endswith("forward")} == judged & {
            int(name.split()[0]) for name in watch.errors
        }


def test_nothing_more_is_sent(crowd, monkeypatch):
    """Beside the weights travel a few numbers; rows and gradients are as many as without the watch."""
    asked = TrainConfig(ModelConfig(hidden=16), steps=4, eval_every=99)
    policy = find("pipegcn").policy()

    def sent():
        return Hub(3).run(lambda t: train(crowd, asked, t, policy=policy))[0].summary["bytes_per_step"]

    watched = sent()
    monkeypatch.setattr("isthmus.local.watch.Watch.sees", lambda self, pass_: False)
    alone = sent()
    few = watched.pop("weights") - alone.pop("weights")
    assert watched == alone
    assert 0 < few <= 3 * 4 * 4 * 4  # workers, figures, bytes, and both ways


@pytest.mark.parametrize(
    ("recipe", "options", "limit"),
    [
        ("isthmus", {"rate": 0.4, "refresh": 3}, 1.0),
        ("pipegcn", {"staleness": 2}, 1.0),
        ("psc-gcn", {"rate": 0.4, "least": 0, "refresh": 3}, 1.0),
    ],
)
@pytest.mark.parametrize("broken", [3, 6])  # at 3 the guard has just changed its mind
def test_a_resumed_run_has_the_same_bits(crowd, tmp_path, recipe, options, limit, broken):
    policy = replace(find(recipe).policy(options), guard=Guard(limit, patience=3))
    shape, said = ModelConfig("sage", hidden=8, dropout=0.3), []

    def go(steps, out, resume=False):
        asked = TrainConfig(shape, steps=steps, eval_every=50, checkpoint_every=broken, lr=0.02, seed=1)
        watch = lambda line: said.append(line["guard"]["level"])  # noqa: E731
        Hub(3).run(lambda t: train(crowd, asked, t, policy=policy, out=out, resume=resume, watch=watch))
        return load_file(out / "checkpoints" / f"step-{steps}" / "model.safetensors")

    whole = go(11, tmp_path / "whole")
    assert set(said) == {"exact", "lossy"}
    go(broken, tmp_path / "broken")
    went_on = go(11, tmp_path / "broken", resume=True)
    assert all(torch.equal(whole[name], went_on[name]) for name in whole)


def test_a_guard_needs_all_features_and_an_edge_cut():
    with pytest.raises(InputError, match="set guard to off with cache_rows"):
        find("isthmus").policy({"cache_rows": 0.5})
    with pytest.raises(InputError, match="guard_error must be above 0"):
        find("isthmus").policy({"guard_error": 0})
    with pytest.raises(InputError, match="has no option 'guard'"):
        find("exact").policy(GUARDED)
