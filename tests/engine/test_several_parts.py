"""Fewer workers than parts: the same result, whatever their number, and a run may change it when it is resumed."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import community_graph, cut
from safetensors.torch import load_file

from isthmus.comm import Hub
from isthmus.engine import PredictConfig, TrainConfig, predict, train
from isthmus.engine.verify import verify
from isthmus.errors import InputError
from isthmus.nn import ModelConfig
from isthmus.recipes import find

PARTS, STEPS = 8, 6


def asked(model="gcn", **changes):
    shape = ModelConfig(model=model, layers=2, hidden=8, heads=2, dropout=0.3)
    return TrainConfig(model=shape, **{"steps": STEPS, "eval_every": 2, "dtype": "float64", "seed": 3, **changes})


def run(book, config, workers, **options):
    """Losses, summary and notes, with workers as threads."""
    losses, notes = [], []

    def work(transport):
        watch = (lambda line: losses.append(line["loss"])) if transport.rank == 0 else None
        policy = find(config.recipe).policy(config.options)
        return train(book, config, transport, policy=policy, watch=watch, note=notes.append, **options)

    summary = Hub(workers).run(work)[0].summary
    return torch.tensor(losses, dtype=torch.float64), summary, notes


@pytest.mark.parametrize(
    ("model", "changes", "directed"),
    [
        ("gcn", {}, False),
        ("sage", {"inductive": True, "features": "standard"}, False),
        ("gat", {}, True),
        ("gcn", {"recipe": "cagnet"}, False),
    ],
)
def test_equal_to_one_process(tmp_path, model, changes, directed):
    graph = community_graph(directed=directed)
    config = asked(model, **changes)
    alone = run(cut(graph, 1, "random", tmp_path), config, 1)
    book = cut(graph, PARTS, "random", tmp_path)
    for workers in (1, 2, 3, 4, 8):
        losses, summary, _ = run(book, config, workers)
        torch.testing.assert_close(losses, alone[0], rtol=0, atol=1e-10)
        assert summary["test"] == alone[1]["test"]
        assert summary["workers"] == workers


def test_verify_and_predict(tmp_path):
    book = cut(community_graph(), PARTS, "metis", tmp_path)
    proof = Hub(3).run(lambda transport: verify(book, asked(), transport))[0]
    assert proof["equal"]
    run(book, asked(), 3, out=tmp_path / "run")
    said = []
    for workers in (1, 3, 8):
        out = tmp_path / f"{workers}.npy"
        wanted = PredictConfig(str(tmp_path / "run"), str(out), ("scores",))
        Hub(workers).run(lambda transport, wanted=wanted: predict(book, wanted, transport))
        said.append(np.load(out))
    assert np.abs(said[0] - said[1]).max() < 1e-6
    assert np.abs(said[0] - said[2]).max() < 1e-6


def test_damage_in_any_part_of_a_worker_is_found(tmp_path):
    book = cut(community_graph(), 4, "random", tmp_path)
    file = book.folder / "part-3" / "degree.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"part-3/degree.npy is corrupt"):
        run(book, asked(), 1)


@pytest.mark.parametrize(("before", "after"), [(4, 3), (2, 8), (3, 1)])
def test_resume_on_another_number_of_workers(tmp_path, before, after):
    book, config = cut(community_graph(), PARTS, "random", tmp_path), asked()
    whole = run(book, config, before)[0]
    run(book, replace(config, steps=4), before, out=tmp_path / "run")
    rest, summary, notes = run(book, config, after, out=tmp_path / "run", resume=True)
    torch.testing.assert_close(rest, whole[4:], rtol=0, atol=1e-10)
    assert summary["workers"] == after
    assert [f"had {before} worker(s) and goes on with {after}" in note for note in notes] == [True]
    assert "fetched anew" not in notes[0]


@pytest.mark.parametrize(
    ("recipe", "options"),
    [
        ("pipegcn", {"smooth_features": 0.9}),
        ("sancus-e", {"bound": 2}),
        ("sancus-a", {"bound": 2}),
        ("sancus-h", {}),
        ("skip-g", {"bound": 2}),
        ("exact", {"bits": 8, "feedback": True}),
        ("psc-gcn", {"refresh": 3, "least": 2, "cache": "degree", "cache_rows": 0.3}),
        ("isthmus", {"refresh": 3}),
    ],
)
def test_stateful_recipes_fetch_anew_what_they_held(tmp_path, recipe, options):
    """Resumed at a step at which some workers would not send, all do: the first loss is that of one process."""
    book = cut(community_graph(), PARTS, "random", tmp_path)
    config = asked(recipe=recipe, options=options)
    run(book, replace(config, steps=4), 4, out=tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "alone")
    exact = run(book, config, 1, out=tmp_path / "alone", resume=True)[0]
    rest, summary, notes = run(book, config, 3, out=tmp_path / "run", resume=True)
    assert [f"channels of {recipe} held is fetched anew" in note for note in notes] == [True]
    assert summary["steps"] == STEPS
    assert torch.isfinite(rest).all()
    if find(recipe).policy(options).sampler is None:
        assert abs(rest[0] - exact[0]) < (1e-3 if "bits" in options else 1e-10)


def test_same_workers_same_bits(tmp_path):
    """Resuming on the same number of workers, several parts each, changes no bit: also of a stateful recipe."""
    book, config = cut(community_graph(), PARTS, "random", tmp_path), asked(recipe="pipegcn")
    run(book, config, 3, out=tmp_path / "whole")
    run(book, replace(config, steps=4), 3, out=tmp_path / "broken")
    notes = run(book, config, 3, out=tmp_path / "broken", resume=True)[2]
    assert notes == []
    one, other = (load_file(tmp_path / name / "checkpoints/step-6/model.safetensors") for name in ("whole", "broken"))
    assert all(torch.equal(one[name], other[name]) for name in one)
