"""The two NeighborLoader scripts of docs/minibatch.md run, learn, and differ as the page says."""

from __future__ import annotations

import difflib
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from docs.pages import DOCS, blocks

ONE, SEVERAL = DOCS / "pyg" / "neighbor_loader.py", DOCS / "pyg" / "neighbor_loader_distributed.py"


def test_both_scripts_learn(tmp_path):
    pytest.importorskip("torch_geometric", reason="PyG is not installed: pip install 'isthmus[pyg]'")
    (scripts,) = (block for block in blocks("minibatch.md", "sh") if "torchrun" in block)
    alone, together = (shlex.split(line) for line in scripts.splitlines())
    assert alone == ["python", ONE.name]
    assert (together[0], together[-1]) == ("torchrun", SEVERAL.name)
    torchrun = ("-m", "torch.distributed.run", *together[1:-1])
    for launcher, script in (((), ONE), (torchrun, SEVERAL)):
        command = [sys.executable, *launcher, str(script)]
        environ = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environ, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        printed = [line for line in done.stdout.splitlines() if line.startswith(("epoch", "test"))]
        assert len(printed) == 11
        assert float(printed[-1].split()[-1]) > 0.8
    assert Path(tmp_path / "parts" / "book.json").exists()


def test_the_difference_that_is_shown():
    """Every line that the page shows is a difference of the scripts."""
    one, several = (script.read_text().splitlines()[1:] for script in (ONE, SEVERAL))
    changed = {line for line in difflib.unified_diff(one, several, n=0, lineterm="") if line[0] in "+-"}
    shown = [line for line in blocks("minibatch.md", "diff")[0].splitlines() if line != "…"]
    assert [line for line in shown if line not in changed] == []
