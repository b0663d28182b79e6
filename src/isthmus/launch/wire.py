"""Compare the traffic on a testbed's links during a run, as its interfaces and as the program counted it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isthmus.testbed import Counters, Testbed


def crossed(testbed: Testbed, wire: Counters, sent: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    """Return the bytes that crossed between hosts.

    `wire` is what the interfaces counted; `sent`, per worker, the bytes that it sent to each peer.
    """
    counted = sum(
        size
        for rank, peers in enumerate(sent)
        for peer, size in peers.items()
        if testbed.host(int(peer), len(sent)) != testbed.host(rank, len(sent))
    )
    return {
        "rate": testbed.rate,
        "hosts": testbed.count,
        "wire_bytes": wire.sent,
        "payload_bytes": wire.payload,
        "counted_bytes": counted,
    }
