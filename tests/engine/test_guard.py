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
from isthmus.local.controller import COMPUTED, WAITED, Controller
from isthmus.nn import ModelConfig
from isthmus.recipes import find

STEPS, GUARDED = 30, {"guard": "on"}  # it acts on what it saw for some steps


@pytest.mark.parametrize("seed", range(5))
def test_decisions(seed):
    draw = np.random.default_rng(seed)
    errors = np.exp(1.2 * np.sin(np.arange(600) / 15) + 0.3 * draw.normal(size=600)) * 0.05
    literal, controller = Decisions(0.05), Controller(Guard(0.05))
    for error in errors:
        controller.observe({"0 forward": 0.0, "1 forward": error, "1 backward": 9.0}, {})
        assert literal.hear(error) == (controller.level == controller.exact)
    assert controller.patience > 10


@pytest.mark.parametrize(("place", "staleness", "limit"), [(TWO, 1, 0.2), (THREE, 2, 0.5), (DIRECTED, 1, 0.1)], ids=str)
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
    ("isthmus", {"rate": 0.5, "bits": 4, "guard_error": 0.4}),
    ("sancus-e", {"bound": 2}),
    ("exact", {"bits": 8}),
]


@pytest.mark.parametrize(("recipe", "options", "every"), [*((*case, 1) for case in CASES), (*CASES[3], 4)])
def test_the_estimate_is_near_the_truth(crowd, monkeypatch, recipe, options, every):
    monkeypatch.setattr("isthmus.local.watch.ROWS", 64)  # of 200 rows
    monkeypatch.setattr("isthmus.local.watch.EVERY", every)
    compared = 0
    for line in lines_of(crowd, recipe, options, cut="edge")[0]:  # covers send sums, of which a probe says nothing
        for place, truth in line["error"].items():
            if place in line.get("row_error", {}) and line.get("guard", {}).get("level") != "exact" and truth > 1e-3:
                assert 1 / 1.5 <= line["row_error"][place] / truth <= 1.5, (line["step"], place)
                compared += every
    assert compared >= 15


def test_all_workers_decide_alike(crowd):
    options = {"rate": 0.3, "guard_error": 0.6}
    seen = lines_of(crowd, "isthmus", options)
    each = [[(line.get("row_error"), line["guard"]) for line in lines] for lines in seen]
    assert each[0] == each[1] == each[2]
    assert {guard["level"] for _, guard in each[0]} == {"exact", "lossy"}


@pytest.mark.parametrize(("dropout", "input_dropout", "judged"), [(0.5, 0, {1}), (0, 0, {1, 2}), (0.5, 0.2, {0, 1, 2})])
def test_masks_alone_do_not_frighten_it(crowd, dropout, input_dropout, judged):
    """Rows made of dropped-out ones differ by their masks at each step; the guard goes by others, if there are any."""
    shape = ModelConfig(layers=3, hidden=8, dropout=dropout, input_dropout=input_dropout)
    policy = find("pipegcn").policy(GUARDED)

    def work(transport):
        views, model, optimizer = prepare(crowd, TrainConfig(shape), policy, transport)
        for step in range(2):  # rows that were sent at the first are compared at the second
            train_step(model, optimizer, views.train, crowd.train[0], step)
        views.train.graph.runtime.drain()
        return views.train.graph.runtime.watch

    for watch in Hub(3).run(work):
        assert {int(name.split()[0]) for name in watch.telling if name.endswith("forward")} == judged & {
            int(name.split()[0]) for name in watch.errors
        }


@pytest.mark.parametrize(
    ("waits", "levels"),
    [
        ([0.0] * 30, [6] * 30),  # nobody waits: nothing is given up
        ([0.5] * 5 + [0.0] * 25, [6] * 5 + [0] * 25),  # a pipeline hides it
        ([0.5] * 5 + [2.0] * 5 + [0.0] * 9, [6] * 5 + [0] * 5 + [1] * 9),  # transfers of 3: 0.27 of them fit
        ([0.5] * 5 + [30.0] * 9, [6] * 5 + [0] * 5 + [4] * 4),
        ([0.5] * 5 + [1e4] * 13, [6] * 5 + [0] * 5 + [5] * 8),  # not enough, but there is no more
        ([0.5, 0.5, 0.5, 0.5, 0.0] * 6, [6] * 30),  # hiccups
    ],
)
def test_no_more_is_given_up_than_the_link_needs(waits, levels):
    ladder = find("isthmus").policy({"auto": True}).ladder
    controller = Controller(None, [rung.share for rung in ladder], by_link=True)
    found = []
    for wait in waits:
        found.append(controller.level)
        controller.observe({"1 forward": 9.0}, {WAITED: 2 * wait, COMPUTED: 2.0})
    assert found == levels


def test_link_and_error_have_one_controller():
    controller = Controller(Guard(0.05, patience=8), [1.0, 0.2], by_link=True)

    def hear(steps, error, wait):
        for _ in range(steps):
            controller.observe({"1 forward": error}, {WAITED: wait, COMPUTED: 1.0})
        return controller.level

    assert hear(9, 0.2, 3.0) == 2  # a loss is worth it, but not safe
    assert hear(11, 0.01, 3.0) == 0
    assert hear(5, 0.01, 3.0) == 1
    state = controller.state()
    assert hear(1, 0.2, 3.0) == 2  # no longer safe
    assert hear(17, 0.01, 3.0) == 2  # twice as patient now
    assert hear(1, 0.01, 3.0) == 1  # and as lossy as the link was found to need
    controller.restore(state)
    assert (hear(30, 0.01, 0.0), controller.patience) == (1, 8)


@pytest.fixture
def narrow(monkeypatch):
    """A link on which rows take as long as a worker computes, whatever the machine does."""
    figures = {WAITED: 1.0, COMPUTED: 1.0}
    monkeypatch.setattr("isthmus.local.ladder.Ladder.figures", lambda self, ledger: figures)


def test_a_run_chooses_by_its_link(crowd, tmp_path, narrow):
    options = {"auto": True, "refresh": 3, "guard": "off"}
    policy, said = find("isthmus").policy(options), []

    def go(steps, out, resume=False):
        shape = ModelConfig("sage", hidden=8, dropout=0.3)
        asked = TrainConfig(shape, steps=steps, eval_every=50, checkpoint_every=12, lr=0.02, seed=1)
        watch = lambda line: said.append((line["guard"]["level"], line["guard"]["waiting"]))  # noqa: E731
        Hub(3).run(lambda t: train(crowd, asked, t, policy=policy, out=out, resume=resume, watch=watch))
        return load_file(out / "checkpoints" / f"step-{steps}" / "model.safetensors")

    whole = go(17, tmp_path / "whole")
    assert list(dict.fromkeys(level for level, _ in said)) == [
        *("exact", "staleness=1 rate=1.0 bits=32", "staleness=1 rate=1.0 bits=8", "staleness=1 rate=0.25 bits=8"),
    ]
    go(12, tmp_path / "broken")
    went_on = go(17, tmp_path / "broken", resume=True)
    assert all(torch.equal(whole[name], went_on[name]) for name in whole)


def test_what_is_read_in_the_last_layer_goes_by_the_rate_unless_it_is_given():
    isthmus = find("isthmus")
    assert isthmus.policy({}).last_layer.rate == 0.1
    assert isthmus.policy({"rate": 0.3}).last_layer.rate == 0.3
    assert isthmus.policy({"rate": 0.3, "last_rate": 0.5}).last_layer.rate == 0.5
    assert isthmus.policy({"rate": 0.3, "sampler": "coupled"}).last_layer is None
    assert [rung.policy.last_layer is None for rung in isthmus.policy({"auto": True}).rungs] == [True] * 2 + [False] * 4
    with pytest.raises(InputError, match="coupled draws inner neighbours in every layer: last_rate is not for it"):
        isthmus.policy({"sampler": "coupled", "last_rate": 0.5})


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
