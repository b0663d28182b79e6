"""Somebody in the same network tries to disturb a run, and does not succeed: every host is a network namespace."""

from __future__ import annotations

import os
import resource
import socket
import struct
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from beds import needs_testbed
from graphs import community_graph, cut
from listeners import listeners
from processes import until

from isthmus.comm.guest import enter
from isthmus.comm.secret import new_secret
from isthmus.errors import InputError
from isthmus.testbed import Testbed as Bed

PORT = 29500
CONNECTIONS = 1500
FLOOD = 512 << 20  # bytes


def worker(bed: Bed, rank: int, parts: Path, run: Path, **environ: str) -> subprocess.Popen:
    """One of two workers, on a host of its own."""
    place = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}
    place |= {"MASTER_ADDR": bed.hosts[0].address, "MASTER_PORT": str(PORT), "TORCH_CPP_LOG_LEVEL": "ERROR"}
    asked = ["--hidden", "8", "--steps", "4", "--quiet", "--timeout", "60", "--threads", "1", "--out", str(run)]
    command = bed.host(rank).command([sys.executable, "-m", "isthmus", "train", str(parts), *asked])
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env={**os.environ, **place, **environ}, **how)


@contextmanager
def many_files():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < CONNECTIONS + 200:
        pytest.skip(f"this user may open only {before[1]} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def memory(pid: int) -> int:
    """Bytes that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


class Attacker:
    """Connections from another host of the same network."""

    def __init__(self, bed: Bed):
        self.bed, self.address = bed, (bed.hosts[0].address, PORT)

    def dial(self) -> socket.socket:
        with self.bed.hosts[2].entered():
            return socket.create_connection(self.address, timeout=5)

    def throw(self, content: bytes, times: int = 1) -> None:
        """Sends as much of it as is taken."""
        with suppress(OSError), self.dial() as stream:
            for _ in range(times):
                stream.sendall(content)

    def pretend(self, rank: int) -> str:
        """Comes as one of the workers, with a secret of its own."""
        with self.bed.hosts[2].entered(), pytest.raises(InputError) as refused:
            enter(rank, 2, self.address, b"not the secret of that run", 5.0, time.monotonic() + 5)
        return str(refused.value)


def forged_key(value: bytes) -> bytes:
    """What torch's own store would take for a key (the meeting point was one once)."""
    key = b"default_pg/0//cpu//0/1"
    return b"\x07\x3c\x85\xf4\x7d\x00" + struct.pack("<Q", len(key)) + key + struct.pack("<Q", len(value)) + value


@needs_testbed
def test_a_run_that_is_attacked_while_its_workers_meet(tmp_path):
    book, run = cut(replace(community_graph(), edge_attr=None), 2, "random", tmp_path), tmp_path / "run"
    secret = new_secret()
    with many_files(), Bed(3, "1gbit") as bed:
        workers, silent = [worker(bed, 0, book.folder, run, ISTHMUS_SECRET=secret)], []
        try:
            until(lambda: listeners(workers[0].pid) or workers[0].poll() is not None)
            assert listeners(workers[0].pid) == [bed.hosts[0].address]  # the one that was named, not all
            attacker, before = Attacker(bed), memory(workers[0].pid)
            silent = [attacker.dial() for _ in range(CONNECTIONS)]
            attacker.throw(os.urandom(1 << 20))
            attacker.throw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            attacker.throw(forged_key(b"10.77.0.3"))
            attacker.throw(struct.pack("!I", FLOOD) + bytes(1 << 20), FLOOD >> 20)
            attacker.throw(forged_key(bytes(1 << 20)), FLOOD >> 20)
            assert "the meeting point refused worker 1" in attacker.pretend(rank=1)
            assert memory(workers[0].pid) - before < 32 << 20
            workers.append(worker(bed, 1, book.folder, run, ISTHMUS_SECRET=secret))
            said = [one.communicate(timeout=100)[1] for one in workers]
        finally:
            for one in workers:
                one.kill()
                one.communicate()
            for stream in silent:
                stream.close()
    assert [one.returncode for one in workers] == [0, 0], said
    assert (run / "summary.json").exists()
    (line,) = said[0].splitlines()
    assert "connection(s) to the meeting point were not of this run, and were dropped" in line
    assert int(line.split()[1].replace(",", "")) >= CONNECTIONS
    assert said[1] == ""


@needs_testbed
def test_without_a_secret_a_run_says_so(tmp_path):
    book = cut(replace(community_graph(), edge_attr=None), 2, "random", tmp_path)
    with Bed(2, "1gbit") as bed:
        workers = [worker(bed, rank, book.folder, tmp_path / "run") for rank in range(2)]
        said = [one.communicate(timeout=100)[1] for one in workers]
    assert [one.returncode for one in workers] == [0, 0], said
    assert said[0].startswith("note: there is no run secret")
    assert "set ISTHMUS_SECRET, or ISTHMUS_SECRET_FILE" in said[0]
    assert said[0].count("\n") == 1
    assert said[1] == ""
