"""Workers killed at random moments: the run goes on by itself, and ends with the bits of an undisturbed one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chaos import Chaos
from graphs import community_graph, cut

needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc to find the workers")


@needs_proc
@pytest.mark.full
def test_kills_change_nothing_of_batches_made_ahead_and_learnt_rows(tmp_path):
    graph = replace(community_graph(), edge_attr=None, x=np.empty((120, 0), np.float32))
    book = cut(graph, 2, "random", tmp_path)
    how = ["--recipe", "distdgl", "--workers", "2", "--hidden", "8", "--eval-every", "4", "--layers", "2"]
    how += ["--batch-size", "12", "--fanout", "4,3", "--set", "embedding=8", "--set", "ahead=3"]
    calm = Chaos(book.folder, tmp_path / "calm", 20, how).undisturbed()
    wild = Chaos(book.folder, tmp_path / "wild", 20, how).disturbed(2, seed=3)
    assert (calm.status, wild.status) == (0, 0), wild.said
    assert wild.restarts >= 1
    assert calm.losses() == wild.losses()
    assert calm.bits() == wild.bits()
    assert sum(name.startswith("rows-") for name in calm.bits()) == 2


@needs_proc
@pytest.mark.full
def test_kills_change_nothing(tmp_path):
    """The seed is such that one kill meets workers that are still starting. `make bench-chaos` does it 20 times."""
    kills, seed = 2, 8
    book = cut(replace(community_graph(), edge_attr=None), 4, "random", tmp_path)
    how = ["--recipe", "pipegcn", "--workers", "3", "--hidden", "8", "--eval-every", "10"]
    calm = Chaos(book.folder, tmp_path / "calm", 200, how).undisturbed()
    wild = Chaos(book.folder, tmp_path / "wild", 200, how).disturbed(kills, seed)
    assert (calm.status, wild.status) == (0, 0), wild.said
    assert calm.said == ""
    assert wild.restarts == len(wild.said.splitlines()) == kills
    assert "was ended by SIGKILL; starting again from step" in wild.said
    assert wild.orphans == []
    assert calm.losses() == wild.losses()
    assert calm.bits() == wild.bits()
