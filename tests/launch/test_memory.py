"""Freed blocks stay with a worker while it trains, and are given back afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from isthmus.launch import memory

SCRIPT = """
import os, torch
from isthmus.launch.memory import kept_blocks

def held():  # pages of this process, without those of its libraries
    resident, shared = open("/proc/self/statm").read().split()[1:3]
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE") / 2**20

torch.set_num_threads(1)
torch.ones(1)
before = held()
with kept_blocks():
    for _ in range(3):
        blocks = [torch.ones(10, 2**18) for _ in range(10)]  # of 10 MiB
        del blocks
    print(held() - before > 60)
print(held() - before < 30)
"""


linux = pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc is meant")


@linux
def test_freed_blocks_are_kept_and_then_given_back():
    decided = ("LD_PRELOAD", "MALLOC_", "GLIBC_TUNABLES")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(decided)}
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["True", "True"]


@linux
@pytest.mark.parametrize(
    ("variable", "asked"), [("ANYTHING", 2), ("MALLOC_ARENA_MAX", 0), ("GLIBC_TUNABLES", 0), ("LD_PRELOAD", 0)]
)
def test_unless_the_user_decides_otherwise(monkeypatch, variable, asked):
    """Then malloc is asked for nothing, neither before nor after."""
    calls = []
    monkeypatch.setattr(memory, "_keep", lambda libc, **limits: calls.append(limits))
    with memory.kept_blocks({variable: "1"}):
        pass
    assert len(calls) == asked


def test_the_memory_is_that_of_the_tightest_limit(tmp_path):
    (tmp_path / "own").write_text("9:memory:/mine\n0::/mine\n")
    for group, limit in (("", "max"), ("mine", str(2**30))):
        (tmp_path / group).mkdir(exist_ok=True)
        (tmp_path / group / "memory.max").write_text(limit)
    assert memory.all_memory(tmp_path, tmp_path / "own") == 2**30
    assert memory.all_memory(tmp_path, tmp_path / "nothing") > 2**30


def test_little_is_kept_where_files_take_the_memory(tmp_path, monkeypatch):
    (tmp_path / "part-0").mkdir()
    (tmp_path / "part-0" / "x.npy").write_bytes(bytes(600))
    for most, tight in ((1000, True), (2000, False), (None, False)):
        monkeypatch.setattr(memory, "all_memory", lambda most=most: most)
        assert memory.is_tight(tmp_path) == tight
    calls = []
    monkeypatch.setattr(memory, "_keep", lambda libc, **limits: calls.append(limits["blocks"]))
    for tight in (True, False):
        with memory.kept_blocks({}, tight):
            pass
    assert calls[0] == 2**20 < calls[2]
