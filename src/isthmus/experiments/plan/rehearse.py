"""Rehearse a few steps of a recipe on the real parts, with all workers in this process: bytes are real, links are not.

Workers take turns, so that the times between two messages are those of computing on cores of one's own. `replay` adds
what happens to messages on a link.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.comm import Hub, InProcess, Pending, Transport, Where
from isthmus.engine import TrainConfig
from isthmus.engine.prepare import prepare
from isthmus.engine.step import train_step
from isthmus.experiments.plan.memory import LiveBytes
from isthmus.experiments.plan.trace import Compute, Event, Post, Step, Trace, Wait
from isthmus.launch.memory import kept_blocks
from isthmus.local import Policy
from isthmus.partition import Book

PRELUDE = 3  # steps whose times do not count: results kept for the run are made, pipelines fill, memory is tracked
PATIENCE = 3600.0  # seconds that a worker may wait for its turn or for another: all others may come before it


@dataclass(frozen=True)
class Played:
    """The result of one worker's rehearsal: its trace, the bytes it sent by kind in each step, its peak memory."""

    trace: Trace
    sent: list[Counter]
    memory: int


def rehearse(
    book: Book, config: TrainConfig, policy: Policy, workers: int, threads: int, at_once: int, steps: int
) -> list[Played]:
    """Run `PRELUDE` + `steps` steps on workers with ``threads`` threads each, `at_once` of them computing together."""

    def work(transport: Transport) -> Played:
        assert isinstance(transport, Rehearsing)
        torch.set_num_threads(threads)  # it is a setting of each thread
        with transport.playing():
            return _play(book, config, policy, transport, steps)

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with kept_blocks():  # as workers do
            return Stage(workers, at_once).run(work)
    finally:
        torch.set_num_threads(before)


def _play(book: Book, config: TrainConfig, policy: Policy, transport: Rehearsing, steps: int) -> Played:
    sent: list[Counter] = []

    def step(number: int) -> None:
        transport.event(Step())
        transport.ledger.take()
        train_step(model, optimizer, views.train, book.train[config.split], number)
        sent.append(transport.ledger.take().kinds)

    with transport.memory:
        views, model, optimizer = prepare(book, config, policy, transport)
        for number in range(PRELUDE):
            step(number)
    for number in range(PRELUDE, PRELUDE + steps):
        step(number)
    transport.event(Step())
    views.train.graph.runtime.drain()
    return Played(transport.trace, sent, transport.memory.peak)


class Stage(Hub):
    """A hub whose workers take turns: `at_once` of them compute, the others wait."""

    def __init__(self, size: int, at_once: int):
        super().__init__(size, PATIENCE)
        self.places = threading.Semaphore(at_once)

    def transport(self, rank: int) -> Rehearsing:
        return Rehearsing(self, rank)


class Rehearsing(InProcess):
    """A transport that records its worker's events. During a handover its clock stands still and its place is free."""

    def __init__(self, stage: Stage, rank: int):
        super().__init__(stage, rank)
        self.places, self.playing_now, self.since = stage.places, False, 0.0
        # The clock of a single thread stands still while others have its core.
        self.clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
        self.trace: Trace = []
        self.memory = LiveBytes()

    @contextmanager
    def playing(self) -> Iterator[None]:
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def event(self, *events: Event) -> None:
        """Record events that take no time."""
        now = self.clock()
        self.trace += [Compute(now - self.since), *events]
        self.since = now

    @contextmanager
    def aside(self, event: Event) -> Iterator[None]:
        self.event(event)
        self._leave()
        yield
        self._enter()

    def _enter(self) -> None:
        self.places.acquire(timeout=PATIENCE)
        self.playing_now, self.memory.paused = True, False
        self.since = self.clock()

    def _leave(self) -> None:
        if self.playing_now:
            self.playing_now, self.memory.paused = False, True
            self.places.release()

    def _exchange(
        self, transfer: int, send: Sequence[Tensor], recv: Sequence[Tensor], where: Where, apart: bool = False
    ) -> Pending:
        sizes = [0 if q == self.rank else rows.numel() * rows.element_size() for q, rows in enumerate(send)]
        with self.aside(Post(transfer, tuple(sizes), apart)):
            return _Watched(self, transfer, super()._exchange(transfer, send, recv, where, apart))


class _Watched(Pending):
    """A transfer whose wait does not count as computing."""

    def __init__(self, transport: Rehearsing, number: int, transfer: Pending):
        super().__init__(transport.ledger)
        self.transport, self.transfer, self.number = transport, transfer, number

    def _wait(self) -> None:
        with self.transport.aside(Wait(self.number)):
            self.transfer.wait()
