"""Measure the cost of a message between workers over the loopback interface.

Waking the threads that move messages takes longer than moving most of them, and longer still if more workers share
the cores: so it is measured with as many workers as the run will have.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import Any, NamedTuple

import torch

from isthmus.comm import Transport, Where
from isthmus.engine.learning import build_optimizer
from isthmus.engine.record import memory_peak_bytes
from isthmus.launch.place import threads_for

SMALL, LARGE = 1 << 12, 1 << 21  # bytes
BATCHES = 6
COLD = 8  # blocks used in turn
_WHERE = Where("gauge", "forward", 0)


@dataclass(frozen=True)
class Gauge:
    """The costs of messages on this machine, in seconds unless said otherwise."""

    latency: float
    """From sending a message to its arrival, without the computing that it causes."""
    per_message: float
    """Computing in the worker's own thread for each message that it sends or expects."""
    per_sent_byte: float
    """Computing in that thread for each byte sent: the backend begins to write while its caller waits."""
    aside: float
    """Computing in other threads for each such message, before its bytes move."""
    per_byte: float
    """Computing in other threads for each byte, at each end of a link."""
    bandwidth: float
    """Bytes per second that a worker can send while it receives as many."""
    memory: int
    """Bytes that a worker needs before it has read anything."""


class Cost(NamedTuple):
    """The seconds of something that all workers do together: total, computing in this thread, computing in others."""

    whole: float
    here: float
    aside: float

    def idle(self, workers: int) -> float:
        """Return the seconds in which no core computed."""
        crowded = max(1.0, workers / threads_for(1, None))
        return max(0.0, self.whole - crowded * (self.here + self.aside))


def gauge(transport: Transport) -> dict[str, Any]:
    """Measure on all workers together; return the costs that this worker found."""
    size, rank, memory = transport.size, transport.rank, _memory()

    def block(length: int) -> list[torch.Tensor]:
        return [torch.zeros(0 if q == rank else length, dtype=torch.uint8) for q in range(size)]

    def exchange(length: int) -> Callable[[], object]:
        # From and into memory that was not used lately, as rows are.
        blocks = cycle([(block(length), block(length)) for _ in range(COLD)])
        return lambda: transport.exchange(*next(blocks), _WHERE).wait()

    small, large = _cost(exchange(SMALL), 30), _cost(exchange(LARGE), COLD)
    messages = 2 * (size - 1)
    found = Gauge(
        latency=small.idle(size),
        per_message=small.here / messages,
        per_sent_byte=max(0.0, large.here - small.here) / ((size - 1) * LARGE),
        aside=small.aside / messages,
        per_byte=max(0.0, large.aside - small.aside) / (messages * LARGE),
        bandwidth=(size - 1) * LARGE / large.whole,
        memory=memory,
    )
    return asdict(found)


def _cost(act: Callable[[], object], times: int) -> Cost:
    """Return the cost of one call in the fastest of several batches, since other load only makes them slower."""
    batches = []
    for _ in range(BATCHES):
        begun, computed, here = time.perf_counter(), time.process_time(), time.thread_time()
        for _ in range(times):
            act()
        taken, mine = time.perf_counter() - begun, time.thread_time() - here
        aside = time.process_time() - computed - mine
        batches.append(Cost(taken / times, mine / times, aside / times))
    return min(batches[1:])  # the first is a warm-up


def _memory() -> int:
    """Return the memory of a process that has done a step."""
    weight = torch.nn.Linear(1, 1)
    weight(torch.ones(1, 1)).sum().backward()
    build_optimizer("adam", 0.01, 0.0, weight).step()
    return memory_peak_bytes()
