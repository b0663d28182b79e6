"""What a message costs here, measured between two workers over the loopback interface."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from isthmus.comm import Transport, Where
from isthmus.engine.record import memory_peak_bytes

WORKERS = 2
LARGE = 4 << 20  # bytes
_WHERE = Where("gauge", "forward", 0)


@dataclass(frozen=True)
class Gauge:
    """Of this machine: seconds of messages, and of computing for them."""

    latency: float
    """From sending a message that is waited for to its arrival."""
    per_message: float
    """Of computing, for each message that a worker sends or expects."""
    per_round: float
    """Of the ring that sums over workers."""
    per_byte: float
    """Of computing, at each end of the way of a byte."""
    bandwidth: float
    """Bytes per second that a worker can send while it receives as many."""
    memory: int
    """Bytes that a worker holds before it has read anything."""


def gauge(transport: Transport) -> dict[str, Any]:
    """Both workers measure; the answer is that of each."""
    peer, size = 1 - transport.rank, transport.size
    nothing = torch.empty(0, dtype=torch.uint8)

    def message(length: int) -> list[torch.Tensor]:
        return [torch.zeros(length, dtype=torch.uint8) if q == peer else nothing for q in range(size)]

    def exchange(length: int) -> tuple[float, float, float]:
        """Seconds of one exchange, of it before waiting, and of computing in all threads."""
        send, recv = message(length), message(length)
        begun, computed = time.perf_counter(), time.process_time()
        pending = transport.exchange(send, recv, _WHERE)
        posted = time.perf_counter()
        pending.wait()
        return time.perf_counter() - begun, posted - begun, time.process_time() - computed

    def reduce() -> tuple[float]:
        begun = time.perf_counter()
        transport.all_reduce(torch.zeros(16), _WHERE)
        return (time.perf_counter() - begun,)

    whole, posting, _ = _at_best(lambda: exchange(64), 200)
    large, _, computing = _at_best(lambda: exchange(LARGE), 25)
    (sums,) = _at_best(reduce, 100)
    found = Gauge(
        latency=max(0.0, whole - posting),
        per_message=posting / 2,
        per_round=sums / 2,
        per_byte=computing / (2 * LARGE),
        bandwidth=LARGE / large,
        memory=_memory(),
    )
    return asdict(found)


def _at_best(measure: Callable[[], tuple[float, ...]], times: int) -> list[float]:
    """Each number as it is in the best tenth of the measurements, when the machine has nothing else to do."""
    found = [measure() for _ in range(times)]
    return [sorted(numbers)[times // 10] for numbers in zip(*found, strict=True)]


def _memory() -> int:
    """Of a process that has done a step: making an optimizer alone loads a good part of torch."""
    weight = torch.ones(1, requires_grad=True)
    weight.sum().backward()
    torch.optim.Adam([weight]).step()
    return memory_peak_bytes()
