"""A loop of one's own with isthmus.Worker computes what the engine computes, and what PyG does in one process."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from graphs import community_graph, cut, sparse_rows
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

import isthmus
from isthmus import recipes
from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.errors import InputError
from isthmus.nn import ModelConfig

STEPS = 8
CONFIG = TrainConfig(model=ModelConfig("sage", hidden=8), steps=STEPS, eval_every=1, dtype="float64", seed=3)


def loop(worker, model, optimizer, steps=STEPS):
    """Losses and scores of every step."""
    lines = []
    for _ in range(steps):
        model.train()
        optimizer.zero_grad()
        out = model(worker.graph, worker.x)
        loss = worker.step(cross_entropy(out[worker.train_mask], worker.y[worker.train_mask]))
        lines.append([loss, *worker.evaluate(model).values()])
    return lines


def own(config=CONFIG, features=10, classes=4):
    model = config.model.build(features, classes, config.seed, torch.float64)
    return model, torch.optim.Adam(model.parameters(), lr=config.lr)


def by_hand(source, transport, **options):
    with isthmus.Worker(source, transport=transport, seed=3, dtype="float64", **options) as worker:
        model, optimizer = own()
        worker.prepare(model, optimizer)
        return loop(worker, model, optimizer)


def by_engine(book, recipe, options):
    chosen = recipes.find(recipe)
    config = replace(CONFIG, recipe=recipe, options=chosen.settings(options))

    def work(transport):
        lines: list = []
        policy = chosen.policy(config.options)
        train(book, config, transport, policy=policy, watch=lines.append)
        return [[line["loss"], line["train"], line["val"], line["test"]] for line in lines]

    return Hub(book.num_parts).run(work)[0]


RECIPES = {
    "exact": {},
    "vanilla": {},
    "bns": {"rate": 0.5},
    "pipegcn": {"smooth_features": 0.9},
    "sancus-e": {},
    "psc-gcn": {"refresh": 3, "least": 2},
}


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_same_as_the_engine(tmp_path, recipe, workers):
    book = cut(community_graph(), workers, "random", tmp_path)
    want, options = by_engine(book, recipe, RECIPES[recipe]), {"recipe": recipe, "set": RECIPES[recipe]}
    for found in Hub(workers).run(lambda transport: by_hand(book, transport, **options)):
        np.testing.assert_allclose(found, want, rtol=0, atol=1e-10)


def test_an_uncut_graph_is_cut_by_worker_0(tmp_path, monkeypatch):
    """Into a folder that goes away with the worker, unless it is named."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    graph = community_graph()
    alone = by_hand(graph, None)
    together = Hub(3).run(lambda transport: by_hand(graph, transport))
    np.testing.assert_allclose(together[1], alone, rtol=0, atol=1e-10)
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith("torchinductor")]  # torch's own
    Hub(2).run(lambda transport: by_hand(graph, transport, parts=tmp_path / "parts"))
    assert (tmp_path / "parts/book.json").exists()
    with pytest.raises(InputError, match="already cut: give it as the source"):
        isthmus.Worker(graph, parts=tmp_path / "parts")


def test_a_worker_without_training_nodes(tmp_path):
    """Its loss is the mean of nothing; the others' updates are those of one process all the same."""
    graph = community_graph()
    first = np.zeros((120, 1), bool)
    first[:30] = True
    graph = replace(graph, train_mask=first, val_mask=~first, test_mask=np.zeros((120, 1), bool))
    book, whole = (cut(graph, parts, "blocks", tmp_path, order="given") for parts in (3, 1))
    alone = by_hand(whole, None)
    found = Hub(3).run(lambda transport: by_hand(book, transport))
    assert math.isnan(alone[0][3])
    for lines in found:
        np.testing.assert_allclose(lines, alone, rtol=0, atol=1e-10)


def test_a_loss_over_other_rows(tmp_path):
    """`rows` says of how many rows it is the mean, here all that are labelled 0 or 1; gradients can be clipped."""
    graph = community_graph()

    def work(source, transport):
        with isthmus.Worker(source, transport=transport, dtype="float64") as worker:
            model, optimizer = own()
            worker.prepare(model, optimizer)
            chosen, losses = worker.y < 2, []
            for _ in range(STEPS):
                optimizer.zero_grad()
                out = model(worker.graph, worker.x)
                target = nn.functional.one_hot(worker.y[chosen], 4).double()
                loss = binary_cross_entropy_with_logits(out[chosen], target)
                losses.append(worker.backward(loss, rows=int(chosen.sum())))
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
            return [*losses, float(sum(p.detach().abs().sum() for p in model.parameters()))]

    alone = work(graph, None)
    book = cut(graph, 3, "random", tmp_path)
    for found in Hub(3).run(lambda transport: work(book, transport)):
        np.testing.assert_allclose(found, alone, rtol=0, atol=1e-10)


def test_all_begin_with_the_weights_of_worker_0(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)

    def work(transport):
        with isthmus.Worker(book, transport=transport, dtype="float64") as worker:
            model, optimizer = own(replace(CONFIG, seed=transport.rank))
            worker.prepare(model, optimizer)
            return copy.deepcopy(model.state_dict())

    first, second = Hub(2).run(work)
    want = own(replace(CONFIG, seed=0))[0].state_dict()
    assert all(torch.equal(first[name], want[name]) and torch.equal(second[name], want[name]) for name in want)


def test_models_of_different_shapes_are_refused(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)

    def work(transport):
        with isthmus.Worker(book, transport=transport, dtype="float64") as worker:
            worker.prepare(*own(classes=4 + transport.rank))

    with pytest.raises(InputError, match=r"convs.1.weight is \[4, 16\] on worker 0 and \[5, 16\] on worker 1"):
        Hub(2).run(work)


@pytest.mark.parametrize("recipe", ["exact", "pipegcn", "psc-gcn"])
def test_checkpoints_go_on_bit_for_bit(tmp_path, recipe):
    book, run = cut(community_graph(), 2, "random", tmp_path), tmp_path / "run"

    def work(transport, steps):
        with isthmus.Worker(book, transport=transport, recipe=recipe, dtype="float64", seed=3) as worker:
            model, optimizer = own()
            worker.prepare(model, optimizer)
            begun = worker.restore(run)
            lines = loop(worker, model, optimizer, steps - begun)
            if steps < STEPS:
                worker.save(run)
            return begun, lines

    whole = Hub(2).run(lambda transport: work(transport, STEPS))[0]
    half = Hub(2).run(lambda transport: work(transport, 5))[0]
    rest = Hub(2).run(lambda transport: work(transport, STEPS))[0]
    assert (whole[0], half[0], rest[0]) == (0, 0, 5)
    assert half[1] + rest[1] == whole[1]

    def other(transport):
        with isthmus.Worker(book, transport=transport, recipe=recipe, seed=4, dtype="float64") as worker:
            worker.prepare(*own())
            worker.restore(run)

    with pytest.raises(InputError, match="was started with other options: seed was 3 and is 4 now"):
        Hub(2).run(other)


def test_sparse_features_are_a_tensor(tmp_path):
    graph = community_graph()
    dense = np.maximum(graph.x, 0)
    worker = isthmus.Worker(replace(graph, x=sparse_rows(dense)), dtype="float64")
    assert torch.equal(worker.x, torch.from_numpy(dense)[worker.graph.nodes])
    worker.close()


def test_what_a_worker_knows(tmp_path, capsys):
    book = cut(community_graph(), 3, "random", tmp_path)
    with isthmus.Worker(book, inductive=True) as worker:  # alone: it has all parts
        assert (worker.rank, worker.size, worker.num_features, worker.num_classes) == (0, 1, 10, 4)
        assert len(worker.x) == len(worker.y) == int(worker.train_mask.sum()) == book.train[0]
        assert worker.x.dtype == torch.float32
        assert repr(worker).startswith("Worker(0 of 1: exact on LocalGraph(worker 0 of 1: ")
        model = ModelConfig(hidden=8).build(10, 4, 0)
        model.train()
        assert worker.predict(model).shape == (len(worker.x), 4)
        assert model.training
        assert set(worker.evaluate(model)) == {"train", "val", "test"}
        worker.print("once", worker.rank)
    assert capsys.readouterr().out == "once 0\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"recipe": "magic"}, "use one of exact"),
        ({"set": {"share": 1}}, "no option 'share'"),
        ({"split": 3}, "split 3 does not exist"),
        ({"metric": "roc-auc"}, "roc-auc needs two classes"),
        ({"dtype": "float16"}, "unknown dtype"),
        ({"undirected": True}, "is already cut"),
    ],
)
def test_refusals(tmp_path, options, words):
    book = cut(community_graph(), 2, "random", tmp_path)
    with pytest.raises(InputError, match=words):
        isthmus.Worker(book, **options)


def test_steps_need_a_model(tmp_path):
    with isthmus.Worker(cut(community_graph(), 1, "random", tmp_path)) as worker:
        with pytest.raises(InputError, match=r"call worker\.prepare\(model, optimizer\) first"):
            worker.step(torch.zeros(()))
        model = nn.Sequential(nn.Linear(10, 4), nn.InstanceNorm1d(4, track_running_stats=True))
        with pytest.raises(InputError, match="normalises over all nodes"):
            worker.prepare(model, torch.optim.SGD(model.parameters()))


def test_several_machines_need_a_folder_that_all_can_read(monkeypatch):
    place = {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=r"cut it first with isthmus\.partition, or say where with parts=DIR"):
        isthmus.Worker(community_graph())
    assert not Path("parts").exists()


def left_from_one_process(worker, steps: int = 3):
    """A loop whose last lines were never changed: every worker goes its own way."""
    model, optimizer = own()
    worker.prepare(model, optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        out = model(worker.graph, worker.x)
        cross_entropy(out[worker.train_mask], worker.y[worker.train_mask]).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("then", ["evaluate", "predict", "save", "step"])
def test_weights_that_drifted_apart_are_found(tmp_path, then):
    """On every worker at once, so that nobody waits; the error says what to write instead."""
    book = cut(community_graph(), 3, "random", tmp_path)

    def work(transport):
        with isthmus.Worker(book, transport=transport, dtype="float64") as worker:
            model = left_from_one_process(worker)
            looks = {
                "evaluate": lambda: worker.evaluate(model),
                "predict": lambda: worker.predict(model),
                "save": lambda: worker.save(tmp_path / "run"),
                "step": lambda: worker.step(model(worker.graph, worker.x).sum()),
            }
            with pytest.raises(InputError, match=r"differ from those of worker 0 .*: update them with worker\.step"):
                looks[then]()

    with pytest.raises(InputError, match="differ from those of worker 0"):  # once more, when the workers part
        Hub(3).run(work)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("more", [0.01, 1e-12])
def test_a_drift_is_found_within_a_hundred_steps(tmp_path, monkeypatch, more):
    """One worker has another learning rate, if only a little; nobody evaluates."""
    monkeypatch.setattr("isthmus.api.worker.OFTEN", 5)
    book = cut(community_graph(), 2, "random", tmp_path)

    def work(transport):
        with isthmus.Worker(book, transport=transport, dtype="float64") as worker:
            model, optimizer = own(replace(CONFIG, lr=0.01 + more * transport.rank))
            worker.prepare(model, optimizer)

            def one():
                optimizer.zero_grad()
                out = model(worker.graph, worker.x)
                worker.step(cross_entropy(out[worker.train_mask], worker.y[worker.train_mask]))

            for _ in range(5):
                one()
            with pytest.raises(InputError, match="weights of worker 1 differ"):
                one()
            assert worker.steps == 5

    with pytest.raises(InputError, match="weights of worker 1 differ"):  # once more, when the workers part
        Hub(2).run(work)


def test_a_loss_with_class_weights(tmp_path):
    """Its mean is over the sum of the weights; told so, workers do what one process does."""
    graph, weight = community_graph(), torch.tensor([1.0, 5.0, 0.2, 2.0], dtype=torch.float64)

    def work(source, transport):
        with isthmus.Worker(source, transport=transport, dtype="float64") as worker:
            model, optimizer = own()
            worker.prepare(model, optimizer)
            y, losses = worker.y[worker.train_mask], []
            for _ in range(STEPS):
                optimizer.zero_grad()
                loss = cross_entropy(model(worker.graph, worker.x)[worker.train_mask], y, weight)
                losses.append(worker.step(loss, rows=weight[y].sum()))
            return losses

    alone = work(graph, None)
    book = cut(graph, 3, "random", tmp_path)
    for found in Hub(3).run(lambda transport: work(book, transport)):
        np.testing.assert_allclose(found, alone, rtol=0, atol=1e-10)
