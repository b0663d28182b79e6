"""Run one program on every host of a testbed, with the variables that torchrun would set."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence

from isthmus.comm.secret import SECRET, new_secret
from isthmus.testbed.testbed import Testbed

PORT = 29500  # always free on a host of our own
GRACE = 5.0  # seconds that the others have to end by themselves after one has failed


def run_on_hosts(testbed: Testbed, argv: Sequence[str], per_host: int = 1) -> int:
    """Run `argv` `per_host` times on every host at once; return 0, or the status of the first that failed."""
    size = testbed.count * per_host
    secret = os.environ.get(SECRET) or new_secret()
    processes = [_start(testbed, argv, rank, size, secret) for rank in range(size)]
    try:
        while any(process.poll() is None for process in processes) and not any(p.returncode for p in processes):
            time.sleep(0.02)
        return _status(next((p.returncode for p in processes if p.returncode), 0))
    finally:
        _end(processes)


def _start(testbed: Testbed, argv: Sequence[str], rank: int, size: int, secret: str) -> subprocess.Popen:
    host = testbed.host(rank, size)
    place = {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size),  # all hosts share the cores of one machine
        "MASTER_ADDR": testbed.hosts[0].address,
        "MASTER_PORT": str(PORT),
        SECRET: secret,
        **host.environ,
    }
    return subprocess.Popen(host.command(argv), env={**os.environ, **place}, stdin=subprocess.DEVNULL)


def _status(code: int) -> int:
    return code if code >= 0 else 128 - code


def _end(processes: list[subprocess.Popen]) -> None:
    deadline = time.monotonic() + GRACE
    for demand in (subprocess.Popen.poll, subprocess.Popen.terminate, subprocess.Popen.kill):
        for process in processes:
            if process.poll() is None:
                demand(process)
        while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
            time.sleep(0.02)
        deadline = time.monotonic() + GRACE
