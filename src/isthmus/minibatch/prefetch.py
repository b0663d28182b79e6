"""Make batches ahead of the training loop, in a thread, as many as were permitted and in the order of steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from isthmus.comm import Ledger, Transport
from isthmus.errors import WorkerError
from isthmus.minibatch.batch import Batch


class Prefetcher:
    """Hands out the batch of every step, and lets a thread make those of the next ``ahead`` steps meanwhile.

    Batches are made in lock-step by all workers. At step t every worker's loop permits batches up to t + ahead, so all
    threads make exactly the same ones, also if the loops end early together: `close` waits for what was permitted.
    """

    def __init__(self, make: Callable[[int], Batch], ahead: int, last: int, transport: Transport):
        """``last``: the steps of the run. ``transport``: the loop's, whose ledger counts what batches cost."""
        self.make, self.ahead, self.last, self.transport = make, ahead, last, transport
        self.told: dict[str, Any] = {}
        """Nothing is scheduled here."""
        self._turn = threading.Condition()
        self._made: dict[int, Batch] = {}
        self._next = self._permitted = 0
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._closed = False

    def take(self, step: int) -> Batch:
        """Return the batch of a step; steps are taken one after another."""
        if self.ahead == 0:
            batch = self.make(step)
            self._count(batch.ledger, batch.ledger.wait_seconds, batch.ledger.sample_seconds)
            return batch
        begun = time.perf_counter()
        with self._turn:
            if self._thread is None:
                self._next = step
                self._thread = threading.Thread(target=self._work, name="batches", daemon=True)
                self._thread.start()
            self._permitted = min(step + self.ahead + 1, self.last)
            self._turn.notify_all()
            limit = self.transport.timeout * (self.ahead + 1)  # each of its batches may wait that long for others
            if not self._turn.wait_for(lambda: step in self._made or self._error is not None, limit):
                raise WorkerError(
                    f"worker {self.transport.rank} waited {limit:g} s for its batch of step {step}: raise --timeout "
                    "if it is only slow, or give a smaller --batch-size"
                )
            if step not in self._made:
                assert self._error is not None
                raise self._error
            batch = self._made.pop(step)
        self._count(batch.ledger, time.perf_counter() - begun, 0.0)
        return batch

    def _count(self, ledger: Ledger, waited: float, sampled: float) -> None:
        """Add what a batch cost to the loop's ledger: bytes and rows as they are, of its time what the loop waited."""
        ledger.wait_seconds, ledger.sample_seconds = waited, sampled
        self.transport.ledger.add(ledger)
        for (_, _, peer), size in ledger.bytes.items():
            self.transport.sent[peer] += size

    def _work(self) -> None:
        try:
            while True:
                with self._turn:
                    self._turn.wait_for(lambda: self._next < self._permitted or self._closed)
                    if self._next >= self._permitted:
                        return
                    step = self._next
                batch = self.make(step)
                with self._turn:
                    self._made[step], self._next = batch, step + 1
                    self._turn.notify_all()
        except BaseException as error:  # handed to the loop, which raises it
            with self._turn:
                self._error = error
                self._turn.notify_all()

    def close(self, wait: bool = True) -> None:
        """End the thread; ``wait``: after the batches that all workers have permitted."""
        with self._turn:
            self._closed = True
            if not wait:
                self._permitted = self._next
            self._turn.notify_all()
        if self._thread is not None:
            self._thread.join(self.transport.timeout * (self.ahead + 1) if wait else 0.0)
        self._made.clear()
