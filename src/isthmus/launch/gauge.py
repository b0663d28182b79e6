"""What a message costs here, measured between workers over the loopback interface.

Waking the threads that move messages takes longer than moving most of them, and the longer the more workers share
the cores: so it is measured among as many as will.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import Any, NamedTuple

import torch

from isthmus.comm import Transport, Where
from isthmus.engine.record import memory_peak_bytes
from isthmus.launch.place import threads_for

SMALL, LARGE = 1 << 12, 1 << 21  # bytes
BATCHES = 6
COLD = 8  # blocks that take turns
_WHERE = Where("gauge", "forward", 0)


@dataclass(frozen=True)
class Gauge:
    """Of this machine, in seconds."""

    latency: float
    """From sending a message to its arrival, beside the work that it makes."""
    per_message: float
    """Of computing, before its worker goes on, for each message that it sends or expects."""
    per_sent_byte: float
    """The same for each byte that it sends: the backend begins to write while its caller waits."""
    aside: float
    """Of computing for such a message in other threads, before its bytes move."""
    per_byte: float
    """Of computing, in other threads, at each end of the way of a byte."""
    bandwidth: float
    """Bytes per second that a worker can send while it receives as many."""
    memory: int
    """Bytes that a worker holds before it has read anything."""


class Cost(NamedTuple):
    """Seconds of something that all workers do together: in all, of computing in this thread, and in others."""

    whole: float
    here: float
    aside: float

    def idle(self, workers: int) -> float:
        """What no core computed in."""
        crowded = max(1.0, workers / threads_for(1, None))
        return max(0.0, self.whole - crowded * (self.here + self.aside))


def gauge(transport: Transport) -> dict[str, Any]:
    """All workers measure; the answer is that of each."""
    size, rank, memory = transport.size, transport.rank, _memory()

    def block(length: int) -> list[torch.Tensor]:
        return [torch.zeros(0 if q == rank else length, dtype=torch.uint8) for q in range(size)]

    def exchange(length: int) -> Callable[[], object]:
        # From and into memory that was not touched lately, as rows are.
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
    """Of one time, in the fastest of some batches: other work of the machine makes them slower, never faster."""
    batches = []
    for _ in range(BATCHES):
        begun, computed, here = time.perf_counter(), time.process_time(), time.thread_time()
        for _ in range(times):
            act()
        taken, mine = time.perf_counter() - begun, time.thread_time() - here
        aside = time.process_time() - computed - mine
        batches.append(Cost(taken / times, mine / times, aside / times))
    return min(batches[1:])  # the first warms up


def _memory() -> int:
    """Of a process that has done a step: making an optimizer alone loads a good part of torch."""
    weight = torch.ones(1, requires_grad=True)
    weight.sum().backward()
    torch.optim.Adam([weight]).step()
    return memory_peak_bytes()
