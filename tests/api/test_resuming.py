"""`isthmus train --resume RUN` goes on with a run as it was begun; what is typed again must agree."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import sys
from pathlib import Path

import pytest
import torch
from graphs import community_graph, cut
from runs import as_threads
from safetensors.torch import load_file

import isthmus
from isthmus import cli
from isthmus.launch import job, local

BEGUN = "train parts --model sage --hidden 8 --lr 0.02 --eval-every 2 --recipe pipegcn --set smooth_features=0.9"
MODELS = Path(__file__).parent / "models.py"


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Runs a command in a folder with two parts of a small graph; gives its exit status and its last words."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_models.py").write_text(MODELS.read_text())
    cut(community_graph(), 2, "random", tmp_path).folder.rename("parts")
    monkeypatch.setattr(local, "start", as_threads)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)

    def call(line: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["isthmus", *shlex.split(line)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return int(end.value.code or 0), capsys.readouterr().err

    yield call
    sys.modules.pop("own_models", None)


def weights(run: str, step: int) -> dict[str, torch.Tensor]:
    return load_file(f"{run}/checkpoints/step-{step}/model.safetensors")


def test_the_options_are_in_the_folder(command):
    assert command(f"{BEGUN} --steps 8 --quiet --out whole")[0] == 0
    assert command(f"{BEGUN} --steps 4 --quiet --out run --tensorboard")[0] == 0
    assert command("train --resume run --steps 8 --quiet") == (0, "")
    one, other = weights("whole", 8), weights("run", 8)
    assert all(torch.equal(one[name], other[name]) for name in one)
    written = json.loads(Path("run/config.json").read_text())
    assert (written["lr"], written["options"]["smooth_features"], written["model"]["hidden"]) == (0.02, 0.9, 8)
    assert len(list(Path("run/tensorboard").iterdir())) == 2


def test_what_is_typed_again_must_agree(command):
    assert command(f"{BEGUN} --steps 4 --quiet --out run")[0] == 0
    for line in (
        "train --resume run --steps 8 --quiet --lr 0.5",
        "train parts --resume --out run --steps 8 --quiet --lr 0.5",
    ):
        status, said = command(line)
        assert (status, said.count("\n")) == (2, 1)
        assert "lr was 0.02 and is 0.5 now" in said
    assert "recipe was pipegcn and is bns now" in command("train --resume run --steps 8 --recipe bns")[1]
    assert "has already done 4 steps: give more --steps" in command("train --resume run")[1]
    assert "goes on in its own folder: leave --out out" in command("train --resume run --out other")[1]
    assert "run is a run, not a graph: add --resume" in command("train run")[1]
    assert command("train parts --resume --out run --steps 6 --quiet --lr 0.02")[0] == 0
    assert isthmus.train("run", resume=True, steps=8, quiet=True).summary["steps"] == 8


def test_parts_that_moved(command):
    assert command(f"{BEGUN} --steps 4 --quiet --out run")[0] == 0
    shutil.move("parts", "elsewhere")
    status, said = command("train --resume run --steps 8")
    assert status == 2
    assert "isthmus train PARTS --resume --out run" in said
    assert command("train elsewhere --resume --out run --steps 8 --quiet")[0] == 0


def test_a_damaged_config(command):
    assert command(f"{BEGUN} --steps 4 --quiet --out run")[0] == 0
    for content in ("{", "[]", "{}", '{"model": 3}'):
        Path("run/config.json").write_text(content)
        status, said = command("train --resume run --steps 8")
        assert (status, said.count("\n")) == (2, 1)
        assert "config.json is damaged" in said


def test_ctrl_c_prints_the_command_that_goes_on(command, monkeypatch):
    """And that command does; code of one's own is run only if it is named again."""

    def show(display, line):
        if line["step"] == 3:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(job.Display, "show", show)
        status, said = command("train parts --workers 1 --model own_models:Plain --steps 6 --hidden 8 --quiet")
    assert status == 130
    stopped, found = said.strip().splitlines()[-1].split("; to go on: ")
    assert stopped == "stopped: checkpoint of step 4 written"
    assert found == "isthmus train --resume runs/1 --model own_models:Plain"
    status, said = command("train --resume runs/1")
    assert status == 2
    assert "code of its own: to run that, add --model own_models:Plain" in said
    assert command(f"{found.removeprefix('isthmus ')} --quiet")[0] == 0


GOING_ON = "to go on from the last checkpoint: isthmus train --resume run"


@pytest.mark.parametrize(("begun", "words"), [(True, GOING_ON), (False, "interrupted\n")])
def test_a_second_ctrl_c(command, monkeypatch, begun, words):
    def start(job, workers):
        if begun:
            as_threads(job, workers)
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "start", start)
    status, said = command(f"{BEGUN} --steps 2 --quiet --out run")
    assert status == 130
    assert words in said
    assert Path("run").exists() == begun


def test_other_threads_are_noted(command):
    assert command(f"{BEGUN} --steps 4 --quiet --out run")[0] == 0
    written = json.loads(Path("run/config.json").read_text())
    Path("run/config.json").write_text(json.dumps({**written, "threads": 7}))
    status, said = command("train --resume run --steps 6 --quiet")
    assert status == 0
    assert said.count("\n") == 1
    assert said.startswith("note: run had 7 thread(s) per worker and goes on with 1: sums are taken in another order")
