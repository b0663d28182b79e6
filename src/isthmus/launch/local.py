"""Workers as processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch.distributed as dist

from isthmus.engine.record import write_json
from isthmus.errors import InputError, WorkerError
from isthmus.launch.job import Job
from isthmus.launch.memory import use_huge_pages
from isthmus.launch.place import threads_for
from isthmus.launch.wire import crossed
from isthmus.testbed import Host, Testbed

AGAIN = "with --resume the run goes on from its last checkpoint"
GRACE = 5.0  # seconds for the other workers to say what they saw of a failure


def start(job: Job, workers: int, testbed: Testbed | None = None) -> dict[str, Any]:
    """Runs the job on `workers` processes and returns worker 0's summary. None outlives this call.

    With a testbed they run on its hosts in turn, and the summary's ``link`` says what crossed its links.
    """
    # The store lives in this process: its port cannot be taken between being chosen and being used.
    with nullcontext() if testbed is None else testbed.entered():
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    before = None if testbed is None else testbed.counters()
    with tempfile.TemporaryDirectory(prefix="isthmus-") as folder:
        address = "127.0.0.1" if testbed is None else testbed.address
        meeting = {"MASTER_ADDR": address, "MASTER_PORT": str(store.port)}
        hosts = [None if testbed is None else testbed.host(rank) for rank in range(workers)]
        processes = [_spawn(job, rank, meeting, folder, hosts) for rank in range(workers)]
        try:
            _watch(processes, Path(folder), AGAIN if job.kind == "train" else "start it again")
        finally:
            _end(processes)
        summary = json.loads((Path(folder) / "summary").read_text())
        if testbed is not None and before is not None:
            sent = [json.loads((Path(folder) / f"sent-{rank}").read_text()) for rank in range(workers)]
            summary["link"] = crossed(testbed, testbed.counters() - before, sent)
            if job.out is not None:
                write_json(Path(job.out) / "summary.json", summary)
        return summary


def _spawn(job: Job, rank: int, meeting: dict[str, str], answers: str, hosts: list[Host | None]) -> subprocess.Popen:
    host, size = hosts[rank], len(hosts)
    environ = {
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        **meeting,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "OMP_NUM_THREADS": str(threads_for(size, job.threads)),
        "ISTHMUS_JOB": job.to_json(),
        "ISTHMUS_ANSWERS": answers,
        "ISTHMUS_PARENT": str(os.getpid()),
    }
    use_huge_pages(environ)
    command = [sys.executable, "-m", "isthmus.launch.worker"]
    if host is not None:
        command, environ = host.command(command), {**environ, **host.environ}
    # Workers of one machine need no name resolution and no outside interface.
    environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    return subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL)


def _watch(processes: list[subprocess.Popen], answers: Path, again: str) -> None:
    """Returns when all have ended well; raises at the first that did not, once the others had time to speak."""
    failed_at: float | None = None
    while any(process.poll() is None for process in processes):
        if failed_at is None and any(process.returncode for process in processes):
            failed_at = time.monotonic()
        if failed_at is not None and time.monotonic() - failed_at > GRACE:
            break
        time.sleep(0.02)
    failed = {rank: process.returncode for rank, process in enumerate(processes) if process.returncode}
    said = {rank: path.read_text() for rank in failed if (path := answers / f"error-{rank}").exists()}
    for rank, code in failed.items():
        if code == 2:
            raise InputError(said[rank])
    if failed:
        # A worker that died without a word is the cause; those that lost it are its consequence.
        rank = min(failed, key=lambda r: (r in said, r))
        raise WorkerError(said.get(rank) or f"worker {rank} {_how(failed[rank])}; {again}")


def _how(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"


def _end(processes: list[subprocess.Popen]) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + GRACE
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
