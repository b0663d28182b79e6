"""What crossed the links of a testbed during a run: by its interfaces, and by the program's own count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isthmus.testbed import Counters, Testbed


def crossed(testbed: Testbed, wire: Counters, sent: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    """`wire` is what the interfaces counted; `sent`, per worker, the bytes that it sent to each peer.

    Counted are only bytes between hosts.
    """
    counted = sum(
        size
        for rank, peers in enumerate(sent)
        for peer, size in peers.items()
        if testbed.host(int(peer)) != testbed.host(rank)
    )
    return {
        "rate": testbed.rate,
        "hosts": testbed.count,
        "wire_bytes": wire.sent,
        "payload_bytes": wire.payload,
        "counted_bytes": counted,
    }
