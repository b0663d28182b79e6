"""Freed blocks stay with a worker while it trains, and are given back afterwards."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

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


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc is meant")
@pytest.mark.parametrize(("variable", "kept"), [("ANYTHING", "True"), ("MALLOC_ARENA_MAX", "False")])
def test_freed_blocks_are_kept_unless_the_user_decides_otherwise(variable, kept):
    done = subprocess.run(
        ["env", "-u", "LD_PRELOAD", f"{variable}=1", sys.executable, "-c", textwrap.dedent(SCRIPT)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.split() == [kept, "True"]
