"""Detect the rank of this process and the address where the workers meet, from the launcher's environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from isthmus.errors import InputError


@dataclass(frozen=True)
class Place:
    """The position of this process: worker `rank` of `size`; all meet at host:port; `local_size` share this machine."""

    rank: int
    size: int
    host: str
    port: int
    local_size: int
    launcher: str
    restarted: bool = False
    """Whether the launcher may have run the same command before and restarted it after a failure or a preemption."""
    threads: int | None = None
    """Cores per worker, if the launcher said so."""
    together: bool = False
    """Whether the launcher said that all workers are on this machine, so that no other needs to reach them."""


def detect(environ: Mapping[str, str] = os.environ) -> Place | None:
    """Return the place that torchrun, Kubernetes or srun gave this process, or None if none of them started it."""
    try:
        if "RANK" in environ and "WORLD_SIZE" in environ:
            return _torchrun(environ)
        if "SLURM_PROCID" in environ and int(environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
            return _slurm(environ)
    except ValueError as error:
        named = "RANK, WORLD_SIZE, MASTER_PORT or Slurm's variables"
        raise InputError(f"one of {named} is not a number ({error}): unset or correct it") from None
    return None


def _torchrun(environ: Mapping[str, str]) -> Place:
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in environ]
    if missing:
        raise InputError(f"RANK is set but {' and '.join(missing)} is not: start workers with torchrun, or unset RANK")
    size = int(environ["WORLD_SIZE"])
    local = int(environ.get("LOCAL_WORLD_SIZE", size))
    # A Kubernetes Job replaces failed pods without telling the new ones.
    launcher = "kubernetes" if "JOB_COMPLETION_INDEX" in environ else "torchrun"
    restarted = launcher == "kubernetes" or int(environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    meeting = environ["MASTER_ADDR"], int(environ["MASTER_PORT"])
    together = environ.get("LOCAL_WORLD_SIZE") == environ["WORLD_SIZE"]
    return Place(int(environ["RANK"]), size, *meeting, local, launcher, restarted, together=together)


def _slurm(environ: Mapping[str, str]) -> Place:
    hosts = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", "")
    if not hosts:
        raise InputError("srun gave no SLURM_STEP_NODELIST: start the workers with srun inside an allocation")
    size = int(environ["SLURM_STEP_NUM_TASKS"])
    nodes = int(environ.get("SLURM_STEP_NUM_NODES", "1"))
    # Derived from the job, so that all its tasks know it and two jobs on one machine differ;
    # below the ports that the system uses for outgoing connections.
    port = 20000 + (int(environ.get("SLURM_JOB_ID", "0")) * 7 + int(environ.get("SLURM_STEP_ID", "0"))) % 12000
    restarted = int(environ.get("SLURM_RESTART_COUNT", "0")) > 0
    cores = environ.get("SLURM_CPUS_PER_TASK")
    return Place(
        int(environ["SLURM_PROCID"]),
        size,
        environ.get("MASTER_ADDR") or first_host(hosts),
        int(environ.get("MASTER_PORT", port)),
        -(-size // nodes),
        "srun",
        restarted,
        None if cores is None else int(cores),
        environ.get("SLURM_STEP_NUM_NODES") == "1",
    )


def first_host(nodelist: str) -> str:
    """Return the first host of Slurm's compressed list: "n[07-09,12],m1" → "n07"."""
    match = re.match(r"([^,\[]+)(?:\[([0-9]+)[^\]]*\]([^,\[]*))?", nodelist)
    if match is None:
        raise InputError(f"cannot read the host list {nodelist!r}: set MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE")
    prefix, number, suffix = match.groups()
    return f"{prefix}{number or ''}{suffix or ''}"


def local_rank(rank: int, local_size: int, environ: Mapping[str, str] = os.environ) -> int:
    """Return the number of a worker among those of its machine, by which it takes its accelerator."""
    told = environ.get("LOCAL_RANK") or environ.get("SLURM_LOCALID") or ""
    return int(told) if told.isdecimal() else rank % max(local_size, 1)


def threads_for(local_size: int, asked: int | None) -> int:
    """Return the threads of one worker: as asked, else this machine's cores divided among its workers."""
    return max(1, _cores() // local_size) if asked is None else asked


def _cores(limits: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Return the cores that this process may use; a container's limit is in a file, not in the affinity."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = limits.read_text().split()
        return min(cores, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError):  # no limit: no such file, or "max"
        return cores
