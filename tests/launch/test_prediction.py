"""Predictions by workers that are processes, as a person asks for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from graphs import community_graph
from runs import predicted, trained
from typer.testing import CliRunner

from isthmus.cli import app
from isthmus.errors import InputError


def isthmus(*arguments: str, launcher: tuple[str, ...] = ()) -> tuple[int, str, str]:
    """Runs a command in a process of its own; gives (exit status, stdout, stderr)."""
    environ = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, *launcher, "-m", "isthmus", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environ)
    return done.returncode, done.stdout, done.stderr


def test_over_real_sockets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    graph = community_graph()
    book, run, summary = trained(graph, 2, tmp_path)
    status, said, _ = isthmus(
        "predict", "run-2", "--out", "all.npy", "--what", "class", "--what", "embedding", "--json"
    )
    assert status == 0
    told = json.loads(said.splitlines()[-1])
    assert told["files"] == ["all.class.npy", "all.embedding.npy"]
    assert (told["rows"], told["workers"], told["step"]) == (120, 2, summary["best_step"])
    right = (np.load("all.class.npy") == graph.y)[graph.test_mask[:, 0]]
    assert right.mean() == summary["test"]["score"]
    predicted(book, run, tmp_path / "threads.npy", ("embedding",))
    assert np.array_equal(np.load("all.embedding.npy"), np.load("threads.npy"))


def test_moved_parts_and_listed_nodes(tmp_path, monkeypatch, workers_are_threads):
    monkeypatch.chdir(tmp_path)
    book, run, _ = trained(community_graph(), 2, tmp_path)
    predicted(book, run, tmp_path / "all.npy", ("class",))
    book.folder.rename("elsewhere")
    Path("ids").write_text("7\n119\n7\n")
    Path("some.npy").touch()
    some = ("predict", "run-2", "--out", "some.npy", "--what", "class", "--nodes", "ids")
    for options, word in (((), "--parts DIR"), (("--parts", "elsewhere"), "some.npy exists already")):
        refused = CliRunner().invoke(app, [*some, *options])
        assert isinstance(refused.exception, InputError)
        assert word in str(refused.exception)
    done = CliRunner().invoke(app, [*some, "--parts", "elsewhere", "--overwrite"])
    assert done.exit_code == 0
    assert "some.npy" in done.output
    assert np.load("some.npy").tolist() == np.load("all.npy")[[7, 119, 7]].tolist()


@pytest.mark.full
def test_torchrun_joins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    book, run, _ = trained(community_graph(), 2, tmp_path)
    predicted(book, run, tmp_path / "one.npy", ("score",))
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    asked = ("predict", "run-2", "--out", "two.npy", "--what", "score", "--json")
    status, said, complaint = isthmus(*asked, launcher=torchrun)
    assert status == 0, complaint
    assert [json.loads(line)["rows"] for line in said.splitlines() if line.startswith("{")] == [120]
    assert np.array_equal(np.load("one.npy"), np.load("two.npy"))
