"""Make batches ahead of the training loop, in threads, as many as were permitted and in the order of steps."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from isthmus.comm import Ledger, Transport
from isthmus.errors import WorkerError
from isthmus.minibatch.batch import Batch

Finish = Callable[[], Batch]


class Ahead:
    """Hands out the batch of every step, while others make those of the next ``ahead`` steps.

    Batches are made in lock-step by all workers. At step t every worker's loop permits batches up to t + ahead, so all
    workers make exactly the same ones, also if the loops end early together: closing waits for what was permitted.
    """

    def __init__(self, ahead: int, last: int, transport: Transport):
        """``last``: the steps of the run. ``transport``: the loop's, whose ledger counts what batches cost."""
        self.ahead, self.last, self.transport = ahead, last, transport
        self.told: dict[str, Any] = {}
        """What a scheduler did up to the last step, for the record of the run."""
        self._turn = threading.Condition()
        self._made: dict[int, Batch] = {}
        self._next = self._permitted = 0
        self._error: BaseException | None = None

    @property
    def _limit(self) -> float:
        """The seconds that a batch may take: each of those before it may wait for others as long as a message may."""
        return self.transport.timeout * (self.ahead + 1)

    def _failed(self, error: BaseException) -> None:
        """Hand an error to the loop, which raises it."""
        with self._turn:
            self._error = self._error or error
            self._turn.notify_all()

    def _wait(self, step: int) -> Batch:
        """Permit the next steps and return the batch of this one; `_turn` is held."""
        self._permitted = min(step + self.ahead + 1, self.last)
        self._turn.notify_all()
        if not self._turn.wait_for(lambda: step in self._made or self._error is not None, self._limit):
            raise WorkerError(
                f"worker {self.transport.rank} waited {self._limit:g} s for its batch of step {step}: raise --timeout "
                "if it is only slow, or give a smaller --batch-size"
            )
        if step not in self._made:
            assert self._error is not None
            raise self._error
        return self._made.pop(step)

    def _count(self, ledger: Ledger, waited: float, sampled: float = 0.0) -> None:
        """Add what a batch cost to the loop's ledger: bytes and rows as they are, of its time what the loop waited."""
        ledger.wait_seconds, ledger.sample_seconds = waited, sampled
        self.transport.ledger.add(ledger)
        for (_, _, peer), size in ledger.bytes.items():
            self.transport.sent[peer] += size


class Prefetcher(Ahead):
    """Lets a thread begin one batch after another, and another thread finish them.

    So the rows of several batches are under way at the same time, and while they are the next one is drawn.
    """

    def __init__(self, begin: Callable[[int], Finish], ahead: int, last: int, transport: Transport):
        """``begin``: of a step, asks for the rows of its batch; what it returns waits for them."""
        super().__init__(ahead, last, transport)
        self.begin = begin
        self._begun: deque[tuple[int, Finish]] = deque()
        self._threads: list[threading.Thread] = []
        self._closed = False

    def take(self, step: int) -> Batch:
        """Return the batch of a step; steps are taken one after another."""
        if self.ahead == 0:
            batch = self.begin(step)()
            self._count(batch.ledger, batch.ledger.wait_seconds, batch.ledger.sample_seconds)
            return batch
        begun = time.perf_counter()
        with self._turn:
            if not self._threads:
                self._next = step
                work = (self._begin, self._finish)
                self._threads = [threading.Thread(target=each, name="batches", daemon=True) for each in work]
                for thread in self._threads:
                    thread.start()
            batch = self._wait(step)
        self._count(batch.ledger, time.perf_counter() - begun)
        return batch

    def _begin(self) -> None:
        with self._reported():
            while True:
                with self._turn:
                    self._turn.wait_for(lambda: self._next < self._permitted or self._closed)
                    if self._next >= self._permitted or self._error is not None:
                        return
                    step = self._next
                begun = self.begin(step)
                with self._turn:
                    self._begun.append((step, begun))
                    self._next = step + 1
                    self._turn.notify_all()

    def _finish(self) -> None:
        with self._reported():
            while True:
                with self._turn:
                    self._turn.wait_for(lambda: bool(self._begun) or self._has_ended())
                    if not self._begun:
                        return
                    step, finish = self._begun.popleft()
                batch = finish()
                with self._turn:
                    self._made[step] = batch
                    self._turn.notify_all()

    def _has_ended(self) -> bool:
        return self._error is not None or (self._closed and self._next >= self._permitted)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Hand errors to the loop."""
        try:
            yield
        except BaseException as error:
            self._failed(error)

    def close(self, wait: bool = True) -> None:
        """End the threads; ``wait``: after the batches that all workers have permitted."""
        with self._turn:
            self._closed = True
            if not wait:
                self._permitted = self._next
            self._turn.notify_all()
        for thread in self._threads:
            thread.join(self._limit if wait else 0.0)
        self._made.clear()
