"""Files of the working folder are not taken for Python's own; a model of one's own is found there all the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from graphs import community_graph, cut

from isthmus.launch import paths

PLANTED = "open({mark!r}, 'a').write(__name__ + ' ')\nraise SystemExit('planted code has run')\n"
MODEL = """
from beside import WIDTH
from torch import nn


class Net(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.first, self.last = nn.Linear(features, WIDTH), nn.Linear(WIDTH, classes)

    def forward(self, graph, x):
        return self.last(graph.aggregate(self.first(x)))
"""


@pytest.fixture
def folder(tmp_path):
    """A working folder with a model, what it imports, and files of the names of Python's own modules."""
    (tmp_path / "models.py").write_text(MODEL)
    (tmp_path / "beside.py").write_text("WIDTH = 4\n")
    for name in ("queue", "json", "site", "platform", "secrets", "selectors", "yaml", "tensorboard"):
        (tmp_path / f"{name}.py").write_text(PLANTED.format(mark=str(tmp_path / "mark")))
    return tmp_path


@pytest.mark.parametrize("model", ["models:Net", pytest.param("gcn", marks=pytest.mark.full)])
def test_planted_modules_are_not_run(folder, model):
    book = cut(community_graph(), 2, "random", folder)
    asked = ("--model", model, "--steps", "2", "--quiet", "--out", "run")
    # -P: as the command `isthmus` starts, without the working folder.
    command = [sys.executable, "-P", "-m", "isthmus", "train", str(book.folder), *asked]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert not (folder / "mark").exists()
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "run/summary.json").read_text())["workers"] == 2


def test_python_m_looks_into_the_working_folder_last(folder):
    """`python -m` had it first; what it needed before it came to us is Python's affair (PYTHONSAFEPATH=1)."""
    book = cut(community_graph(), 1, "random", folder)
    command = [sys.executable, "-m", "isthmus", "train", str(book.folder), "--model", "models:Net", "--steps", "2"]
    done = subprocess.run([*command, "--out", "run"], cwd=folder, capture_output=True, text=True, timeout=120)
    assert not (folder / "mark").exists()
    assert done.returncode == 0, done.stderr


def test_what_workers_are_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = str(tmp_path / "other")
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), other])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", "/installed", str(tmp_path)]))
    assert paths.told_paths("gcn") == {"PYTHONPATH": "/installed", "ISTHMUS_PATHS": "[]"}
    told = paths.told_paths("models:Net")
    assert json.loads(told["ISTHMUS_PATHS"]) == [other]
    monkeypatch.setattr(sys, "path", ["/usr/lib"])
    paths.look_last(told)
    paths.look_last(told)
    assert sys.path == ["/usr/lib", other]
