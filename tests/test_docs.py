"""The Python shown in the docs runs as it stands."""

from __future__ import annotations

import difflib
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from docs.pages import DOCS, blocks
from runs import ASKED, as_threads
from typer.testing import CliRunner

from isthmus.cli import app
from isthmus.comm import Hub
from isthmus.engine import train
from isthmus.graph import load
from isthmus.launch import local
from isthmus.partition import partition


def test_your_own_model(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch_geometric", reason="PyG is not installed: pip install 'isthmus[pyg]'")
    monkeypatch.chdir(tmp_path)
    shown = blocks("models.md", "python")
    assert len(shown) == 3
    exec("\n".join(shown), {"__name__": "docs"})
    assert "accuracy" in capsys.readouterr().out


def test_from_python(tmp_path, monkeypatch, capsys):
    """The functions, a model in a file of one's own, and the same on the command line; workers are threads."""
    pytest.importorskip("torch_geometric", reason="PyG is not installed: pip install 'isthmus[pyg]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(local, "start", as_threads)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    functions, model, train = blocks("python.md", "python")
    assert model.startswith("# models.py")
    Path("models.py").write_text(model)
    exec(functions + train, names := {"__name__": "docs"})
    assert "test accuracy" in capsys.readouterr().out
    assert names["result"].summary["model"]["model"] == "models:Net"
    command = shlex.split(blocks("python.md", "sh")[0])
    assert command[0] == "isthmus"
    done = CliRunner().invoke(app, command[1:], catch_exceptions=False)
    assert (done.exit_code, "test accuracy" in done.output) == (0, True)
    sys.modules.pop("models")


@pytest.fixture
def in_float64():
    """torch's own draws and numbers as a script of its own would have them."""
    torch.set_default_dtype(torch.float64)
    with torch.random.fork_rng():
        yield
    torch.set_default_dtype(torch.float32)


ONE, SEVERAL = DOCS / "pyg" / "one_process.py", DOCS / "pyg" / "distributed.py"
IN_FLOAT64 = """
import runpy, sys, torch
torch.set_default_dtype(torch.float64)
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def test_one_process_and_several(tmp_path, capsys, in_float64):
    """The two scripts that stand side by side reach the same losses and the same score."""
    pytest.importorskip("torch_geometric", reason="PyG is not installed: pip install 'isthmus[pyg]'")
    environ = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    alone, together = (shlex.split(line) for line in blocks("python.md", "sh")[1].splitlines())
    assert (alone, together[0]) == (["python", ONE.name], "torchrun")
    assert together[-1] == SEVERAL.name
    (tmp_path / "run.py").write_text(IN_FLOAT64)
    launcher = [sys.executable, "-m", "torch.distributed.run", *together[1:-1], str(tmp_path / "run.py"), str(SEVERAL)]
    done = subprocess.run(launcher, capture_output=True, text=True, timeout=120, env=environ)
    assert done.returncode == 0, done.stderr
    said = [done.stdout]
    for script in (SEVERAL, ONE):
        runpy.run_path(str(script), run_name="__main__")
        said.insert(0, capsys.readouterr().out)
    found = [[float(line.split()[-1]) for line in text.splitlines()] for text in said]
    assert len(found[0]) == 31  # losses, and the score
    assert found[0][29] < found[0][0] / 2
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=0, abs=1e-10)


def test_the_difference_that_is_shown():
    """What the page says must be changed is what is different, and a handful of lines."""
    one, several = (script.read_text().splitlines()[1:] for script in (ONE, SEVERAL))
    lines = list(difflib.unified_diff(one, several, n=0, lineterm=""))[2:]
    changed = [line for line in lines if line[0] in "+-" and len(line) > 1]
    assert [line for line in blocks("python.md", "diff")[0].splitlines() if line != "…"] == changed
    assert len([line for line in changed if line[0] == "+"]) < 10


def test_the_python_of_the_readme(tmp_path, monkeypatch):
    """It needs nothing that is not there. Workers are threads."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "start", as_threads)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    (shown,) = re.findall(r"```python\n(.*?)```", (DOCS.parent / "README.md").read_text(), re.DOTALL)
    exec(shown, names := {"__name__": "docs"})
    assert names["result"].summary["steps"] == 50


def test_where_the_best_weights_are(tmp_path, monkeypatch):
    """The lines that read them do, and what they read is the model of the result."""
    monkeypatch.chdir(tmp_path)
    book = partition(load("synthetic:flickr@0.01"), 1, out="parts")
    result = train(book, ASKED, Hub(1).transport(0), out=Path("run"))
    exec(blocks("predict.md", "python")[1], names := {"__name__": "docs"})
    best = result.model.state_dict()
    assert names["weights"].keys() == best.keys()
    assert all((names["weights"][name] == best[name]).all() for name in best)
