"""What a person sees while workers train."""

from __future__ import annotations

import io
import subprocess
from types import SimpleNamespace

import pytest
from graphs import community_graph, cut
from rich.console import Console

from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.launch import supervise
from isthmus.launch.display import Display
from isthmus.launch.job import Job
from isthmus.launch.throughput import WINDOW, Throughput, clock
from isthmus.nn import ModelConfig


def line(step: int, wait: float = 0.02, **more) -> dict:
    split = {"step": wait + 0.025, "compute": 0.02, "wait": wait, "sample": 0.001, "reduce": 0.004}
    return {"step": step, "loss": 0.5, "seconds": split["step"], "split": split, "bytes": 3 << 19, **more}


def shown(lines: list[dict], terminal: bool, width: int = 80, rank: int = 0) -> str:
    """All that a display wrote, without the codes that move the cursor."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=terminal, width=width, no_color=True, legacy_windows=False)
    workers = SimpleNamespace(rank=rank, size=3, way="", hosts=[0, 0, 0])
    config = TrainConfig(model=ModelConfig("sage"), steps=40)
    with Display(config, SimpleNamespace(name="a [graph]"), workers, console=console) as display:
        for one in lines:
            display.show(one)
        display.note("something [odd]")
    return written.getvalue()


SCORES = {"train": 0.91, "val": 0.82, "test": 0.73}


@pytest.mark.parametrize("width", [80, 120])
def test_on_a_terminal(width):
    text = shown([line(1), line(2, **SCORES)], terminal=True, width=width)
    last = text.splitlines()
    assert "a [graph]: exact, sage, 3 worker(s)" in text
    assert any("2/40" in row and "left" in row for row in last)
    assert any("loss 0.5000  train 0.9100  val 0.8200  test 0.7300" in row for row in last)
    assert any("45.0 ms/step: compute 20.0, wait 20.0, sample 1.0, reduce 4.0; 1.5 MiB sent" in row for row in last)
    assert "note: something [odd]" in text


def test_elsewhere_a_line_at_each_evaluation():
    title, first, second, note = shown(
        [line(1), line(2, **SCORES), line(3), line(4, **SCORES)], terminal=False
    ).splitlines()
    assert title == "a [graph]: exact, sage, 3 worker(s)"
    for step, row in ((2, first), (4, second)):
        assert row.startswith(f"step     {step}  loss 0.5000  train 0.9100  val 0.8200  test 0.7300  45.0 ms/step: ")
        assert "compute 20.0, wait 20.0, sample 1.0, reduce 4.0; 1.5 MiB sent; 0:00, " in row
    assert note == "note: something [odd]"


def test_only_worker_0_shows():
    assert shown([line(1, **SCORES)], terminal=True, rank=1) == "note: something [odd]\n"


def test_the_pace_is_that_of_the_last_steps():
    pace = Throughput(steps=100)
    for step in range(11, 11 + WINDOW):  # resumed at step 10
        pace.add(line(step, wait=9.0), now=float(step))
    assert str(pace).startswith("9.0 s/step: compute 0.0, wait 9.0")
    for step in range(11 + WINDOW, 11 + 2 * WINDOW):
        pace.add(line(step), now=float(step))
    assert pace.mean("wait") == pytest.approx(0.02)
    assert pace.left == pytest.approx(100 - 50)  # a second per step, whatever the steps themselves took


def test_nobody_knows_the_end_after_one_step():
    pace = Throughput(steps=100)
    pace.add(line(1))
    assert clock(pace.left) == "-:--"
    assert [clock(seconds) for seconds in (0, 61.4, 3909)] == ["0:00", "1:01", "1:05:09"]


def test_a_run_tells_its_watchers_where_a_step_went(tmp_path):
    book, config, seen = cut(community_graph(), 2, "random", tmp_path), TrainConfig(steps=3, eval_every=3), []

    def work(transport):
        watch = seen.append if transport.rank == 0 else None
        train(book, config, transport, out=tmp_path / "run", watch=watch)

    Hub(2).run(work)
    assert [one["step"] for one in seen] == [1, 2, 3]
    for one in seen:
        split = dict(one["split"])
        assert split.pop("step") == pytest.approx(sum(split.values()), abs=1e-5)
        assert one["bytes"] > 0
    assert "split" not in (tmp_path / "run/metrics.jsonl").read_text()  # worker-K.jsonl has it


@pytest.mark.parametrize(("notebook", "errors"), [(True, subprocess.STDOUT), (False, None)])
def test_in_notebooks_workers_do_not_speak_in_red(monkeypatch, notebook, errors):
    """What they write to stderr would stand in a red box there."""
    given: dict = {}
    monkeypatch.setattr(supervise, "in_notebook", lambda: notebook)
    monkeypatch.setattr(subprocess, "Popen", lambda command, **how: given.update(how))
    supervise.spawn({"ISTHMUS_JOB": Job("train", "parts", TrainConfig()).to_json()})
    assert given["stderr"] == errors
