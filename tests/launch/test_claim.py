"""One command at a time writes to a run folder, and none that fails leaves an empty one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from graphs import community_graph, cut
from processes import contents
from runs import as_threads

from isthmus import cli
from isthmus.engine.lock import FolderLock
from isthmus.launch import local


@pytest.fixture
def isthmus(monkeypatch, capsys, tmp_path):
    """Runs a command in a folder with two parts of a small graph; gives its exit status and its complaint."""
    monkeypatch.chdir(tmp_path)
    cut(community_graph(), 2, "random", tmp_path).folder.rename("parts")
    monkeypatch.setattr(local, "start", as_threads)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)

    def call(line: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["isthmus", *line.split()])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return int(end.value.code or 0), capsys.readouterr().err

    return call


def test_two_resumes_of_one_folder(isthmus):
    assert isthmus("train parts --hidden 8 --steps 2 --quiet --out run")[0] == 0
    before = contents(Path("run"))
    assert "run.lock" not in before
    with FolderLock(Path("run")):
        status, said = isthmus("train parts --hidden 8 --steps 4 --quiet --out run --resume")
        assert (status, said.count("\n")) == (2, 1)
        assert "run is in use by process" in said
        # Others may read it all the while.
        assert isthmus("predict run --out nodes.npy")[0] == 0
        assert isthmus("report run --out page.html")[0] == 0
    assert contents(Path("run")) == before
    assert isthmus("train parts --hidden 8 --steps 4 --quiet --out run --resume")[0] == 0


def test_two_comparisons_in_one_folder(isthmus):
    compare = "compare parts --hidden 8 --steps 2 --recipes exact --seeds 1 --quiet --out c"
    assert isthmus(compare)[0] == 0
    with FolderLock(Path("c")):
        status, said = isthmus(f"{compare} --resume")
    assert (status, said.count("\n")) == (2, 1)
    assert "c is in use by process" in said


@pytest.mark.parametrize(
    "line",
    [
        "train missing.npz",
        "train missing.npz --out new/run",
        "train parts --workers 3",
        "train parts --workers 3 --out new/run",
        "compare missing.npz",
        "compare parts --workers 3 --out new/run",
    ],
)
def test_a_command_that_fails_leaves_no_empty_folder(isthmus, line):
    status, said = isthmus(line)
    assert (status, said.count("\n")) == (2, 1)
    assert sorted(path.name for path in Path().iterdir()) == ["parts"]


def test_folders_that_were_there_stay(isthmus):
    Path("runs/1").mkdir(parents=True)
    Path("mine").mkdir()
    assert isthmus("train missing.npz")[0] == 2
    assert isthmus("train missing.npz --out mine")[0] == 2
    assert sorted(str(path) for path in Path().rglob("*") if path.is_dir() and "parts" not in str(path)) == [
        "mine",
        "runs",
        "runs/1",
    ]
