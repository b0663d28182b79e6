"""What TensorBoard reads of a run."""

from __future__ import annotations

import json

import pytest
from graphs import community_graph, cut

from isthmus.engine import TrainConfig
from isthmus.errors import InputError
from isthmus.launch import events
from isthmus.launch.job import Job
from isthmus.launch.start import launch
from isthmus.nn import ModelConfig

SMALL = TrainConfig(model=ModelConfig("sage", 2, 8), steps=4, eval_every=2)


def job(parts, out, **changes) -> Job:
    return Job("train", str(parts), SMALL, str(out), quiet=True, tensorboard=True, **changes)


def test_events_are_the_metrics(tmp_path):
    reading = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="tensorboard is not installed: pip install 'isthmus[tensorboard]'",
    )
    book, run = cut(community_graph(), 2, "random", tmp_path), tmp_path / "run"
    launch(job(book.folder, run), str(book.folder), 2)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    read = reading.EventAccumulator(str(run / events.FOLDER))
    read.Reload()
    seconds = {f"seconds/{name}" for name in ("step", "compute", "wait", "sample", "reduce")}
    assert set(read.Tags()["scalars"]) == {"loss", "score/train", "score/val", "score/test", "bytes", *seconds}
    losses = read.Scalars("loss")
    assert [(one.step, one.value) for one in losses] == [(line["step"], pytest.approx(line["loss"])) for line in lines]
    scores = {line["step"]: pytest.approx(line["val"]) for line in lines if "val" in line}
    assert {one.step: one.value for one in read.Scalars("score/val")} == scores
    assert all(one.value > 0 for one in read.Scalars("bytes"))


def test_steps_that_are_done_again_replace_the_earlier(tmp_path):
    reading = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="tensorboard is not installed: pip install 'isthmus[tensorboard]'",
    )
    for attempt, steps in ((1, range(1, 6)), (2, range(4, 8))):
        with events.events(tmp_path) as watch:
            for step in steps:
                watch({"step": step, "loss": attempt, "split": {"step": 0.1}, "bytes": 0, "error": {"0 forward": 0.5}})
    read = reading.EventAccumulator(str(tmp_path))
    read.Reload()
    assert [(one.step, one.value) for one in read.Scalars("loss")] == [
        *((1, 1.0), (2, 1.0), (3, 1.0)),
        *((4, 2.0), (5, 2.0), (6, 2.0), (7, 2.0)),
    ]
    assert len(read.Scalars("error/0 forward")) == 7


def test_without_the_package_nothing_is_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'isthmus\[tensorboard\]'"):
        launch(job("absent", tmp_path / "run"), "absent", 2)
    assert not (tmp_path / "run").exists()
