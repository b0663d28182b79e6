"""Workers killed at random moments: the run goes on by itself, and ends with the bits of an undisturbed one."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos import Chaos
from graphs import community_graph, cut


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc to find the workers")
@pytest.mark.parametrize(("recipe", "parts", "kills", "seed"), [("exact", 4, 2, 88), ("pipegcn", 3, 2, 8)])
def test_kills_change_nothing(tmp_path, recipe, parts, kills, seed):
    """The seeds are such that one kill of each run meets workers that are still starting."""
    book = cut(community_graph(), parts, "random", tmp_path)
    how = ["--recipe", recipe, "--workers", "3", "--hidden", "8", "--eval-every", "10"]
    calm = Chaos(book.folder, tmp_path / "calm", 200, how).undisturbed()
    wild = Chaos(book.folder, tmp_path / "wild", 200, how).disturbed(kills, seed)
    assert (calm.status, wild.status) == (0, 0), wild.said
    assert calm.said == ""
    assert wild.restarts == len(wild.said.splitlines()) == kills
    assert "was ended by SIGKILL; starting again from step" in wild.said
    assert wild.orphans == []
    assert calm.losses() == wild.losses()
    assert calm.bits() == wild.bits()
