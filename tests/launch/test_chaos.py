"""Workers killed at random moments: the run goes on by itself, and ends with the bits of an undisturbed one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from chaos import Chaos
from graphs import community_graph, cut


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc to find the workers")
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
