"""Weights & Biases and MLflow are told what metrics.jsonl is told. Their packages are played by small modules."""

from __future__ import annotations

import json
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import pytest
import torch
from graphs import community_graph, cut
from runs import as_threads

import isthmus
from isthmus.errors import InputError
from isthmus.launch import local, trackers
from isthmus.launch.job import Job
from isthmus.launch.start import launch

QUICK = {"hidden": 8, "eval_every": 2, "quiet": True}


class Told(list):
    """What a package was told, (what, about) in its order; it fails when it is told what `fails` names."""

    fails = ""

    def take(self, what: str, **about) -> None:
        if what == self.fails:
            raise ConnectionError("nobody there\nat all")
        self.append((what, about))

    def of(self, what: str) -> list[dict]:
        return [about for name, about in self if name == what]


def module(monkeypatch, name: str, **content) -> None:
    played = ModuleType(name)
    played.__spec__ = ModuleSpec(name, None)
    vars(played).update(content)
    monkeypatch.setitem(sys.modules, name, played)


@pytest.fixture
def wandb(monkeypatch) -> Told:
    told = Told()

    def init(**about):
        told.take("init", **about)
        return SimpleNamespace(
            id=about["id"] or "abc123",
            log=lambda values, step: told.take("log", step=step, **values),
            summary=SimpleNamespace(update=lambda results: told.take("summary", **results)),
            finish=lambda exit_code: told.take("finish", exit_code=exit_code),
        )

    module(monkeypatch, "wandb", init=init)
    return told


@pytest.fixture
def mlflow(monkeypatch) -> Told:
    told = Told()

    def start_run(run_id, run_name, nested):
        told.take("start_run", run_id=run_id, run_name=run_name)
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id or "77"))

    module(
        monkeypatch,
        "mlflow",
        start_run=start_run,
        log_params=lambda params: told.take("log_params", **params),
        log_metrics=lambda values, step=None, synchronous=True: told.take("log_metrics", step=step, **values),
        end_run=lambda status: told.take("end_run", status=status),
    )
    return told


@pytest.fixture
def parts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "start", as_threads)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    return cut(community_graph(), 2, "random", tmp_path).folder


def test_both_follow_a_run_and_its_resumption(parts, wandb, mlflow):
    result = isthmus.train(parts, **QUICK, steps=4, out="run", track="wandb, mlflow")
    lines = [json.loads(line) for line in (result.run / "metrics.jsonl").read_text().splitlines()]
    best = {f"best/{name}": score for name, score in result.scores.items()}
    (begun,) = wandb.of("init")
    assert (begun["name"], begun["dir"], begun["id"], begun["resume"]) == ("run", "run", None, "allow")
    assert begun["config"]["model.hidden"] == 8
    for logged in (wandb.of("log"), [one for one in mlflow.of("log_metrics") if one["step"]]):
        assert [(one["step"], one["loss"]) for one in logged] == [(line["step"], line["loss"]) for line in lines]
        assert [one.get("score/val") for one in logged] == [line.get("val") for line in lines]
        assert all(one["seconds/step"] > 0 and one["bytes"] > 0 for one in logged)
    assert (wandb.of("summary"), wandb.of("finish")) == ([best], [{"exit_code": 0}])
    assert mlflow.of("log_metrics")[-1] == {"step": None, **best}
    assert mlflow.of("log_params")[0]["lr"] == 0.01
    assert mlflow.of("end_run") == [{"status": "FINISHED"}]
    isthmus.train("run", resume=True, steps=6, quiet=True)
    assert [one["id"] for one in wandb.of("init")] == [None, "abc123"]
    assert [one["run_id"] for one in mlflow.of("start_run")] == [None, "77"]
    assert len(mlflow.of("log_params")) == 1
    assert [one["step"] for one in wandb.of("log")] == [1, 2, 3, 4, 5, 6]
    isthmus.train("run", resume=True, steps=8, quiet=True, track="none")
    assert len(wandb.of("init")) == 2


def test_a_tracker_that_fails_does_not_end_the_run(parts, wandb, mlflow, capfd):
    wandb.fails = "log"
    result = isthmus.train(parts, **QUICK, steps=4, out="run", track="wandb,mlflow")
    assert result.summary["steps"] == 4
    said = capfd.readouterr().err
    assert said.count("wandb failed (ConnectionError: nobody there): the run goes on without it") == 1
    assert [one["step"] for one in mlflow.of("log_metrics")] == [1, 2, 3, 4, None]


def test_a_tracker_that_cannot_begin_is_an_error(parts, wandb, mlflow):
    """One that has begun is told."""
    wandb.fails = "init"
    with pytest.raises(InputError, match=r"wandb cannot follow run \(nobody there\): correct that, or track="):
        isthmus.train(parts, **QUICK, steps=4, workers=1, out="run", track="mlflow,wandb")
    assert mlflow.of("end_run") == [{"status": "FAILED"}]


def test_a_run_that_fails_is_marked(parts, mlflow):
    with pytest.raises(InputError, match="the loss became"):
        isthmus.train(parts, **QUICK, steps=4, workers=1, out="run", track="mlflow", lr=1e30)
    assert mlflow.of("end_run") == [{"status": "FAILED"}]


def test_refusals(parts, monkeypatch):
    with pytest.raises(InputError, match="no tracker 'neptune': `track` takes wandb, mlflow; TensorBoard is"):
        isthmus.train(parts, **QUICK, track="neptune")
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'isthmus\[wandb\]'"):
        launch(Job("train", str(parts), None, "run", track="wandb"), str(parts), 1)
    assert sorted(path.name for path in parts.parent.iterdir()) == [parts.name]
