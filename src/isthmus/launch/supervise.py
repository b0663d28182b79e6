"""Supervise worker processes from start to end, wherever they run: pass them their job, and interpret their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple, Protocol

from isthmus.comm.meet import KEPT
from isthmus.comm.secret import SECRET
from isthmus.console import in_notebook, log
from isthmus.engine.stop import Stop, command_to_go_on
from isthmus.errors import CodeError, InputError, Stopped, WorkerError
from isthmus.launch.job import Job
from isthmus.launch.memory import use_huge_pages
from isthmus.launch.network import LOOPBACK_INTERFACE
from isthmus.launch.paths import told_paths
from isthmus.launch.place import threads_for
from isthmus.launch.signals import asked_to_stop

COMMAND = [sys.executable, "-P", "-m", "isthmus.launch.worker"]  # -P: do not import from the working folder
LOOPBACK = LOOPBACK_INTERFACE
STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)
GRACE = 5.0  # seconds for the other workers to report what they saw of a failure


class Meeting(NamedTuple):
    """The address where workers meet, and the secret that they need to be let in."""

    host: str
    port: int
    secret: str


class Process(Protocol):
    """The methods of `subprocess.Popen` that are used of a worker's process."""

    returncode: int | None

    def poll(self) -> int | None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def wait(self) -> int: ...


def variables(job: Job, rank: int, size: int, local_size: int, meeting: Meeting) -> dict[str, str]:
    """Return the variables of a worker process: those of torchrun, its job, the secret, and who keeps the meeting."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(local_size),
        "LOCAL_RANK": str(rank % local_size),
        "MASTER_ADDR": meeting.host,
        "MASTER_PORT": str(meeting.port),
        KEPT: "starter",
        SECRET: meeting.secret,
        "OMP_NUM_THREADS": str(threads_for(local_size, job.threads)),
        "ISTHMUS_JOB": job.to_json(),
    }


def spawn(told: dict[str, str], command: list[str] = COMMAND) -> subprocess.Popen:
    """Start a worker process on this machine, which ends when this one ends."""
    paths = told_paths(Job.from_json(told["ISTHMUS_JOB"]).config.model.model)
    environ = {**os.environ, **paths, **told, "ISTHMUS_PARENT": str(os.getpid())}
    use_huge_pages(environ)
    errors = subprocess.STDOUT if in_notebook() else None  # notebooks show stderr as a red box
    # In a session of their own, Ctrl-C reaches only this process, which stops them in good order.
    return subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stderr=errors, start_new_session=True)


def signals(job: Job) -> AbstractContextManager[Stop]:
    """Return a handler of signals for training, which writes a checkpoint before it ends; for other jobs none."""
    return asked_to_stop() if job.kind == "train" else nullcontext(Stop())


def supervise(job: Job, processes: Sequence[Process], stop: Stop, answers: Path) -> None:
    """Wait until all processes have ended; raise an error if the run failed. No process outlives this call."""
    try:
        _watch(processes, stop, job.timeout)
        _judge(job, processes, stop, answers)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def _watch(processes: Sequence[Process], stop: Stop, timeout: float) -> None:
    """Wait until all have ended, or one failed and the others had time to report; pass on a request to stop."""
    deadline: float | None = None
    told = False
    while None in (codes := [process.poll() for process in processes]):
        failed = [code for code in codes if code]
        if any(code < 0 for code in failed):
            break  # it reported nothing, and the others know no more
        if stop.asked and not told:
            for process in processes:
                process.terminate()  # they write a checkpoint and end
            told, deadline = True, time.monotonic() + timeout
        if deadline is None and any(code not in STOPPED for code in failed):
            deadline = time.monotonic() + GRACE
        if deadline is not None and time.monotonic() > deadline:
            break
        time.sleep(0.02)


def _judge(job: Job, processes: Sequence[Process], stop: Stop, answers: Path) -> None:
    """Raise the error with which a run ended, unless it succeeded."""
    if all(process.returncode == 0 for process in processes):
        return
    failed = {rank: process.returncode for rank, process in enumerate(processes) if process.returncode}
    said = {rank: path.read_text() for rank in failed if (path := answers / f"error-{rank}").exists()}
    for rank, code in failed.items():
        if code == 2:
            raise InputError(said[rank])
    if stop.asked or any(code in STOPPED for code in failed.values()):
        raise Stopped(said[0] if failed.get(0) in STOPPED else _early(job), stop.status)
    raised = [rank for rank, code in failed.items() if code == 1 and rank in said]
    if raised and all(code > 0 for code in failed.values()):
        log.error("%s", (answers / f"trace-{raised[0]}").read_text())
        raise CodeError(said[raised[0]])
    # A worker that died without a message is the cause; those that lost it are its consequence.
    rank = min(failed, key=lambda r: (r in said, r))
    remedy = "" if job.kind == "train" else "; start it again"
    raise WorkerError(said.get(rank) or f"worker {rank} {_how(failed[rank])}{remedy}")


def _early(job: Job) -> str:
    """Return the message about a stopped run whose worker 0 had no time to write its own."""
    if job.out is None or not (Path(job.out) / "config.json").exists():
        return "stopped before anything was written"
    going_on = command_to_go_on(job.out, job.config)
    return f"stopped before a checkpoint of this step was written; to go on from the one before: {going_on}"


def _how(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
