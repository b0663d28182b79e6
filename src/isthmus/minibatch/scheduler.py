"""When to begin the DAG of the next batch, and which of the tasks that are ready runs first.

Two levels, as in ByteGNN. Coarse (its algorithm 1): a DAG is launched when

    launch score = T_gap · f(C_util) · balance ≥ σ,   balance = T_sample / (T_train · max(Q, 1)),
    f(C) = 101 − exp(C / c),   c = 100 / ln 101

so that little is launched while processors are busy, or while batches wait to be trained on. Fine: tasks of the DAG
launched first come first, of one DAG the cheapest. Schedulers change when a batch is made, never what is in it.
"""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from isthmus.errors import InputError
from isthmus.minibatch.pool import Task

AT_ONCE = 2
PAUSE, MOST = 0.005, 0.2  # seconds between two looks at the launch score: at least, and at most if nothing happens
_C = 100 / math.log(101)
_STAT = Path("/proc/stat")


class Load(NamedTuple):
    """The figures that a scheduler knows when it decides whether to launch another DAG."""

    queue: int
    """Batches that are made and not yet trained on."""
    running: int
    """DAGs that are launched and have not ended."""
    busy: float
    """The use of the machine's processors, 0 to 100, over the last 200 ms."""
    gap: float
    """Milliseconds since the last launch."""
    sample: float
    """Mean seconds of work to make a batch."""
    train: float
    """Mean seconds to train on one."""
    least: int = AT_ONCE
    """Batches that are to be made or under way whatever the score."""


class Scheduler(Protocol):
    """The two decisions: launch another DAG, and the order of tasks."""

    def launches(self, load: Load) -> bool:
        """Return whether another DAG is launched now."""

    def pause(self, load: Load) -> float:
        """Return the seconds after which the first decision may be another one if nothing happens."""

    def key(self, task: Task) -> tuple:
        """Return what orders tasks that are ready: the least runs first."""


@dataclass(frozen=True)
class TwoLevel:
    """ByteGNN's scheduler. σ is not printed: 450 launches after 5 ms at half use when balance is 1.

    A few DAGs are launched whatever the score: as printed it divides by the length of the queue, and on busy processors
    nothing would ever be made ahead. They are `AT_ONCE` first, and one more whenever the loop had to wait for a batch
    that could have been begun before: so the score holds back only what would not have been needed in time.
    """

    sigma: float = 450.0

    def score(self, load: Load) -> float:
        balance = load.sample / (load.train * max(load.queue, 1)) if load.sample and load.train else 1.0
        return load.gap * max(101 - math.exp(load.busy / _C), 0.0) * balance  # not a rounding below 0 at full use

    def launches(self, load: Load) -> bool:
        return load.queue + load.running < load.least or self.score(load) >= self.sigma

    def pause(self, load: Load) -> float:
        rise = self.score(load._replace(gap=1000.0))  # per second
        return min(max(self.sigma / rise - load.gap / 1000 if rise > 0 else MOST, PAUSE), MOST)

    def key(self, task: Task) -> tuple:
        return task.dag, task.cost


@dataclass(frozen=True)
class Fifo:
    """The baseline: launch whatever may be launched, run tasks in the order in which they became ready."""

    def launches(self, load: Load) -> bool:
        return True

    def pause(self, load: Load) -> float:
        return MOST

    def key(self, task: Task) -> tuple:
        return ()


SCHEDULERS = {
    "two-level": "ByteGNN's: launched by use of the processors and by what waits, earlier and cheaper tasks first",
    "fifo": "launched as soon as there is room, tasks in the order in which they are ready",
}


def make_scheduler(name: str, sigma: float) -> Scheduler:
    """Return the scheduler of that name."""
    if name not in SCHEDULERS:
        raise InputError(f"unknown scheduler {name!r}: use one of {', '.join(SCHEDULERS)}")
    if not sigma >= 0:
        raise InputError(f"sigma must be at least 0, not {sigma:g}")
    return Fifo() if name == "fifo" else TwoLevel(sigma)


class CpuUse:
    """The use of this machine's processors over the last moments; where the system does not say, 0."""

    def __init__(self, window: float = 0.2):
        self.window = window
        self._seen: deque[tuple[float, float, float]] = deque()

    def percent(self) -> float:
        now = time.monotonic()
        if not self._seen or now - self._seen[-1][0] >= self.window / 10:
            self._seen.append((now, *_busy_and_all()))
        while len(self._seen) > 2 and now - self._seen[1][0] >= self.window:
            self._seen.popleft()
        (_, busy, every), (_, busy_now, every_now) = self._seen[0], self._seen[-1]
        return 100 * (busy_now - busy) / (every_now - every) if every_now > every else 0.0


def _busy_and_all() -> tuple[float, float]:
    """Return the time that the processors have been busy, and all their time."""
    try:
        with _STAT.open() as lines:
            ticks = [float(value) for value in lines.readline().split()[1:9]]
    except (OSError, ValueError):
        return 0.0, 0.0
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)  # without idle and waiting for disks
