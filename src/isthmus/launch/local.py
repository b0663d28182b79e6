"""Workers as processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch.distributed as dist

from isthmus.engine.record import write_json
from isthmus.engine.stop import Stop
from isthmus.errors import InputError, Stopped, WorkerError
from isthmus.launch.job import Job
from isthmus.launch.memory import use_huge_pages
from isthmus.launch.place import threads_for
from isthmus.launch.signals import asked_to_stop
from isthmus.launch.wire import crossed
from isthmus.testbed import Host, Testbed

STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)
GRACE = 5.0  # seconds for the other workers to say what they saw of a failure


def start(job: Job, workers: int, testbed: Testbed | None = None) -> dict[str, Any]:
    """Runs the job on `workers` processes and returns worker 0's summary. None outlives this call.

    With a testbed they run on its hosts in turn, and the summary's ``link`` says what crossed its links.
    """
    # The store lives in this process: its port cannot be taken between being chosen and being used.
    with nullcontext() if testbed is None else testbed.entered():
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    before = None if testbed is None else testbed.counters()
    with tempfile.TemporaryDirectory(prefix="isthmus-") as folder, _signals(job) as stop:
        address = "127.0.0.1" if testbed is None else testbed.address
        meeting = {"MASTER_ADDR": address, "MASTER_PORT": str(store.port)}
        hosts = [None if testbed is None else testbed.host(rank) for rank in range(workers)]
        processes = [_spawn(job, rank, meeting, folder, hosts) for rank in range(workers)]
        try:
            _watch(processes, stop, job.timeout)
            _judge(processes, stop, Path(folder), "" if job.kind == "train" else "; start it again")
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
        # What can be imported here, such as a model of one's own, can be imported there.
        "PYTHONPATH": os.pathsep.join(folder or os.getcwd() for folder in sys.path),
    }
    use_huge_pages(environ)
    command = [sys.executable, "-m", "isthmus.launch.worker"]
    if host is not None:
        command, environ = host.command(command), {**environ, **host.environ}
    # Workers of one machine need no name resolution and no outside interface.
    environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    # A session of their own: Ctrl-C reaches this process alone, which tells them in good order.
    return subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, start_new_session=True)


def _signals(job: Job) -> AbstractContextManager[Stop]:
    """Only training has something to write before it ends."""
    return asked_to_stop() if job.kind == "train" else nullcontext(Stop())


def _watch(processes: list[subprocess.Popen], stop: Stop, timeout: float) -> None:
    """Returns when all have ended, or one has failed and the others had time to speak; passes on a wish to stop."""
    deadline: float | None = None
    told = False
    while None in (codes := [process.poll() for process in processes]):
        failed = [code for code in codes if code]
        if any(code < 0 for code in failed):
            break  # it said nothing, and what the others say of it is no news
        if stop.asked and not told:
            _tell(processes)
            told, deadline = True, time.monotonic() + timeout
        if deadline is None and any(code not in STOPPED for code in failed):
            deadline = time.monotonic() + GRACE
        if deadline is not None and time.monotonic() > deadline:
            break
        time.sleep(0.02)


def _tell(processes: list[subprocess.Popen]) -> None:
    """Asks all workers to write a checkpoint and end."""
    for process in processes:
        process.terminate()


def _judge(processes: list[subprocess.Popen], stop: Stop, answers: Path, remedy: str) -> None:
    """Raises what a run ended with, unless it ended well."""
    if all(process.returncode == 0 for process in processes):
        return
    failed = {rank: process.returncode for rank, process in enumerate(processes) if process.returncode}
    said = {rank: path.read_text() for rank in failed if (path := answers / f"error-{rank}").exists()}
    for rank, code in failed.items():
        if code == 2:
            raise InputError(said[rank])
    if stop.asked or any(code in STOPPED for code in failed.values()):
        early = "stopped before a checkpoint of this step was written; --resume goes on from the one before, if any"
        raise Stopped(said[0] if failed.get(0) in STOPPED else early, stop.status)
    # A worker that died without a word is the cause; those that lost it are its consequence.
    rank = min(failed, key=lambda r: (r in said, r))
    raise WorkerError(said.get(rank) or f"worker {rank} {_how(failed[rank])}{remedy}")


def _how(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"


def _end(processes: list[subprocess.Popen]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()
