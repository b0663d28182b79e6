"""Make batches beside the training loop by running their DAGs on a pool of threads, launched by a scheduler."""

from __future__ import annotations

import threading
import time

from isthmus.comm import Transport
from isthmus.minibatch.batch import Batch
from isthmus.minibatch.dag import SamplingDag
from isthmus.minibatch.pool import Pool
from isthmus.minibatch.prefetch import Ahead
from isthmus.minibatch.scheduler import AT_ONCE, CpuUse, Load, Scheduler

_KEEPS = 0.8  # of a mean when a new value comes


class Pipeline(Ahead):
    """Lets a scheduler launch the DAGs of the steps that were permitted.

    They are launched in the order of steps, and all that were permitted are made: so all workers make the same requests
    in the same order, whatever their schedulers decide.
    """

    def __init__(self, dag: SamplingDag, scheduler: Scheduler, ahead: int, last: int, transport: Transport):
        super().__init__(ahead, last, transport)
        self.dag, self.scheduler = dag, scheduler
        self._running = self._launched = self._held = 0
        self._pool: Pool | None = None
        self._launcher: threading.Thread | None = None
        self._closed = self._drains = False
        self._cpu, self._launch_time, self._taken = CpuUse(), 0.0, 0.0
        self._sample, self._train, self._least = 0.0, 0.0, AT_ONCE

    def take(self, step: int) -> Batch:
        """Return the batch of a step; steps are taken one after another."""
        begun = time.perf_counter()
        if self._pool is None:
            self._begin(step)
        with self._turn:
            if self._taken:
                self._train = _mean(self._train, begun - self._taken)
            queue = len(self._made)
            if step not in self._made and self._next < self._permitted:  # it waits, and another was held back
                self._least = min(self._least + 1, self.ahead + 1)
            batch = self._wait(step)
            self._taken = time.perf_counter()
            self.told = {
                "queue": queue,
                "running": self._running,
                "busy": round(self._cpu.percent(), 1),
                "launched": self._launched,
                "held": self._held,
                "waited": round(self._taken - begun, 6),
            }
            self._launched = self._held = 0
            self._turn.notify_all()
        self._count(batch.ledger, self._taken - begun)
        return batch

    def close(self, wait: bool = True) -> None:
        """End the threads; ``wait``: after the batches that all workers have permitted."""
        if self._pool is None:
            return
        with self._turn:
            self._drains = True
            self._turn.notify_all()
            if wait:
                self._turn.wait_for(self._has_ended, self._limit)
            self._closed = True
            self._turn.notify_all()
        self._pool.close(self._limit if wait else 0.0)
        if self._launcher is not None:
            self._launcher.join(self._limit if wait else 0.0)
        self._made.clear()

    def _has_ended(self) -> bool:
        return (self._next >= self._permitted and not self._running) or self._error is not None

    def _begin(self, step: int) -> None:
        self._next = step
        self._pool = Pool(self.dag.threads, self.scheduler.key, self.dag.requests, step, self._failed)
        self._launcher = threading.Thread(target=self._launch, name="batches", daemon=True)
        self._launcher.start()

    def _launch(self) -> None:
        """Launch the DAGs that were permitted, each when the scheduler says so."""
        assert self._pool is not None
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._next < self._permitted or self._closed)
                if self._closed:
                    return
                load = self._load()
                if not self._drains and (self._is_full() or not self.scheduler.launches(load)):
                    self._held += 1
                    self._turn.wait(self.scheduler.pause(load))
                    continue
                step, self._next = self._next, self._next + 1
                self._running += 1
                self._launched += 1
                self._launch_time = time.perf_counter()
                self._pool.seconds[step] = 0.0
            self.dag.launch(step, self._pool, self._finished)

    def _is_full(self) -> bool:
        """Return whether made batches fill the memory that they may have: one is always under way, or made."""
        return bool(self._made) and sum(batch.num_bytes for batch in self._made.values()) >= self.dag.most_bytes

    def _load(self) -> Load:
        gap = 1000 * (time.perf_counter() - self._launch_time)
        times = self._cpu.percent(), gap, self._sample, self._train
        return Load(len(self._made), self._running, *times, self._least)

    def _finished(self, batch: Batch) -> None:
        assert self._pool is not None
        with self._turn:
            self._sample = _mean(self._sample, self._pool.seconds.pop(batch.step, 0.0))
            self._running -= 1
            self._made[batch.step] = batch
            self._turn.notify_all()


def _mean(mean: float, value: float) -> float:
    return _KEEPS * mean + (1 - _KEEPS) * value if mean else value
