"""Runs as processes of their own, and a look at their workers."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path


def started(parts: Path, out: Path, *options: str, launcher: tuple[str, ...] = (), **environ: str) -> subprocess.Popen:
    """A training run, in the background."""
    command = [sys.executable, *launcher, "-m", "isthmus", "train", str(parts), "--hidden", "8", "--quiet"]
    how = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    variables = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", **environ}
    return subprocess.Popen([*command, "--out", str(out), *options], env=variables, **how)


def workers_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def steps_of(run: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in (run / "checkpoints").glob("step-*"))


def reached(run: Path, step: int) -> bool:
    """Whether a run has written a checkpoint of that step or a later one; old ones are removed soon."""
    return max(steps_of(run), default=0) >= step


def free_port() -> int:
    """A port that nobody has, and that the system gives to no outgoing connection."""
    while True:
        port = random.randrange(20000, 32000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def until(condition, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)


def alive(pids: list[int]) -> bool:
    return any(Path(f"/proc/{pid}").exists() for pid in pids)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, to see that nothing has changed."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
