"""What a message costs here, measured between two workers over the loopback interface."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch

from isthmus.comm import Transport, Where
from isthmus.engine.record import memory_peak_bytes
from isthmus.launch.place import threads_for

WORKERS = 2
SMALL, USUAL, LARGE = 64, 1 << 18, 1 << 22  # bytes
TIMES, ALL_TIMES = 80, 100  # messages that count, and with those that warm up
UNDISTURBED, MEDIAN = 0.2, 0.5  # quantiles: what else the machine does makes things longer, never shorter
_WHERE = Where("gauge", "forward", 0)


@dataclass(frozen=True)
class Gauge:
    """Of this machine: seconds of messages, and of computing for them."""

    latency: float
    """From sending a message that is waited for to its arrival."""
    latency_busy: float
    """The same while all cores compute for others."""
    per_round: float
    """Of the ring that sums over workers."""
    per_round_busy: float
    per_message: float
    """Of computing, before its worker goes on, for each message that it sends or expects."""
    aside: float
    """Of computing beside that, in other threads."""
    per_byte: float
    """Of computing, in other threads, at each end of the way of a byte."""
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

    def exchange(length: int) -> tuple[float, float]:
        """Seconds of one exchange, and of it before waiting."""
        send, recv = message(length), message(length)
        begun = time.perf_counter()
        pending = transport.exchange(send, recv, _WHERE)
        posted = time.perf_counter()
        pending.wait()
        return time.perf_counter() - begun, posted - begun

    def reduce() -> tuple[float]:
        begun = time.perf_counter()
        transport.all_reduce(torch.zeros(16), _WHERE)
        return (time.perf_counter() - begun,)

    small, posting = _repeated(lambda: exchange(SMALL), 200, UNDISTURBED)
    large, _ = _repeated(lambda: exchange(LARGE), 25, UNDISTURBED)
    (sums,) = _repeated(reduce, 100, UNDISTURBED)
    with _busy(threads_for(WORKERS, None)) as computed:
        begun = computed()
        small_busy, posting_busy = _repeated(lambda: exchange(SMALL), TIMES, MEDIAN)
        between = computed()
        _repeated(lambda: exchange(USUAL), TIMES, MEDIAN)
        of_small, of_usual = between - begun, computed() - between  # a message each way, at this end
        (sums_busy,) = _repeated(reduce, 40, MEDIAN)
    found = Gauge(
        latency=max(0.0, small - posting),
        latency_busy=max(0.0, small_busy - posting_busy),
        per_round=sums / 2,
        per_round_busy=sums_busy / 2,
        per_message=posting / 2,
        aside=of_small / (2 * ALL_TIMES),
        per_byte=max(0.0, of_usual - of_small) / (2 * ALL_TIMES * USUAL),
        bandwidth=LARGE / large,
        memory=_memory(),
    )
    return asdict(found)


def _repeated(measure: Callable[[], tuple[float, ...]], times: int, quantile: float) -> list[float]:
    """A quantile of each number; the first measurements only warm up."""
    found = [measure() for _ in range(times + times // 4)][times // 4 :]
    return [sorted(numbers)[int(quantile * times)] for numbers in zip(*found, strict=True)]


@contextmanager
def _busy(cores: int) -> Iterator[Callable[[], float]]:
    """So many threads of this process compute, as other workers would.

    Gives what tells the seconds that threads computed which are neither those nor this one: they move messages.
    """
    over = threading.Event()

    def compute() -> None:
        torch.set_num_threads(1)
        block = torch.ones(256, 256)
        while not over.is_set():
            block @ block

    threads = [threading.Thread(target=compute, name=f"busy-{k}") for k in range(cores)]
    for thread in threads:
        thread.start()
    clocks = [time.pthread_getcpuclockid(int(thread.ident or 0)) for thread in threads]
    try:
        yield lambda: time.process_time() - time.thread_time() - sum(time.clock_gettime(clock) for clock in clocks)
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _memory() -> int:
    """Of a process that has done a step: making an optimizer alone loads a good part of torch."""
    weight = torch.ones(1, requires_grad=True)
    weight.sum().backward()
    torch.optim.Adam([weight]).step()
    return memory_peak_bytes()
