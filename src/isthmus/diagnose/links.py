"""Measure the speed of the links between workers, as training would use them."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.comm import Transport, Where

PINGS = 9
ROUNDS = 8  # of ever larger messages, until one takes long enough
FIRST, LARGEST, GROWTH = 1 << 15, 1 << 26, 8  # bytes of a message, and by how much the next may grow
TARGET = 0.2  # seconds that a message should take …
BUDGET = 30.0  # … unless all pairs together would take longer than this

WHERE = Where("doctor", "forward", 0, "ids")
WORD = torch.zeros(1, dtype=torch.int64)


@dataclass(frozen=True)
class Link:
    """A link from worker `source` to worker `target`; the latency is half a round trip."""

    source: int
    target: int
    bits_per_second: float
    latency_seconds: float


def measure_links(transport: Transport) -> list[Link]:
    """Measure the link from every worker to every other; return the same list on each.

    One link at a time, so that no two measurements share a wire. Every worker takes part in every exchange, most of
    them with nothing to send, because transfers are numbered by counting them.
    """
    pairs = [(a, b) for a in range(transport.size) for b in range(transport.size) if a != b]
    target = min(TARGET, BUDGET / max(3 * len(pairs), 1))  # two such messages, and the smaller ones before
    found = torch.zeros(len(pairs), 2, dtype=torch.float64)
    for k, (source, sink) in enumerate(pairs):
        one_way = _Way(transport, source, sink)
        latency = min(one_way.there_and_back(WORD) for _ in range(PINGS)) / 2  # the least: machines only add delay
        rate = one_way.rate(latency, target)
        if transport.rank == source:
            found[k] = torch.tensor([rate, latency], dtype=torch.float64)
    transport.all_reduce(found, WHERE)
    return [Link(*pair, *values) for pair, values in zip(pairs, found.tolist(), strict=True)]


class _Way:
    """Messages from one worker to another; the other workers take part with nothing to send."""

    def __init__(self, transport: Transport, source: int, sink: int):
        self.transport, self.source, self.sink = transport, source, sink

    def there_and_back(self, message: Tensor) -> float:
        """Return the seconds until the source knows that the message has arrived."""
        begun = time.perf_counter()
        self._send(message, self.source, self.sink)
        self._send(WORD, self.sink, self.source)
        return time.perf_counter() - begun

    def rate(self, latency: float, target: float) -> float:
        """Return, at the source, the bits per second of messages of about `target` seconds, the better of two."""
        size, long = FIRST if self.transport.rank == self.source else 0, [0.0]
        for _ in range(ROUNDS):
            size = int(self._send(torch.tensor([size]), self.source, self.sink))  # the source decides; 0: enough
            seconds = self.there_and_back(torch.zeros(size, dtype=torch.uint8))
            rate = 8 * size / max(seconds - 2 * latency, 1e-9)
            if seconds < target / 2 and size < LARGEST:
                size = min(LARGEST, GROWTH * size, max(2 * size, int(rate / 8 * target)))
            else:  # again, since a lost packet may have held it up
                long.append(rate)
                size = 0 if len(long) > 2 else size
        return max(long)

    def _send(self, message: Tensor, source: int, sink: int) -> Tensor:
        """Return what the sink received; the other workers get their own message back."""
        rank, size = self.transport.rank, self.transport.size
        leaving, arriving = [message[:0]] * size, [message[:0]] * size
        if rank == source:
            leaving[sink] = message
        elif rank == sink:
            arriving[source] = torch.empty_like(message)
        self.transport.exchange(leaving, arriving, WHERE).wait()
        return arriving[source] if rank == sink else message
