"""The scripts of examples/ run as they stand; workers are threads of this process where processes are not the point."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from beds import needs_testbed
from processes import free_port
from runs import as_threads

import isthmus
from isthmus.launch import local

FOLDER = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a script in a folder of its own, as ``python NAME.py`` would."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(local, "start", as_threads)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    yield lambda name: runpy.run_path(f"{name}.py", run_name="__main__")
    sys.modules.pop("own_model", None)


def test_own_data(run, capsys):
    result = run("own_data")["result"]
    assert result.scores["test"] > 0.6  # three classes, noisy hints
    assert "node,class,score" in capsys.readouterr().out


def test_own_model(run, capsys):
    run("own_model")
    assert "test accuracy" in capsys.readouterr().out


def test_own_loop(run, capsys):
    run("own_loop")
    losses = [float(loss) for loss in re.findall(r"loss (\S+)", capsys.readouterr().out)]
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 3


@pytest.mark.full  # tests/launch/test_machines.py does the same with the command
def test_several_hosts(run, tmp_path):
    """Two torchruns that do not know of each other, as on two machines."""
    isthmus.partition("synthetic:flickr@0.02", 2, out="parts", quiet=True)
    port = str(free_port())
    meeting = ("--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", port)
    environ = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "torch.distributed.run", *meeting]
    both = [
        subprocess.Popen(
            [*command, "--node-rank", str(rank), "several_hosts.py", "parts", "run"],
            env=environ,
            stdout=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    said = [one.communicate(timeout=120)[0].decode() for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert ("test accuracy" in said[0], said[1]) == (True, "")


@needs_testbed
@pytest.mark.full
def test_narrow_link(run, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    run("narrow_link")
    assert all((tmp_path / f"narrow-{name}" / "summary.json").is_file() for name in ("vanilla", "exact", "isthmus"))


def test_the_page_names_them_all():
    shown = re.findall(r"\]\((\w+\.py)\)", (FOLDER / "README.md").read_text())
    assert sorted(shown) == sorted(path.name for path in FOLDER.glob("*.py"))
