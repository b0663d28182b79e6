"""What crossed the links, counted where it is sent, and how long workers waited for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


class Where(NamedTuple):
    """The place of a transfer in a run; every error and every count carries it."""

    site: int | str  # the k-th exchange of a forward pass, or a name such as "weights"
    direction: str  # "forward" (rows) or "backward" (their gradients), "reduce"
    step: int
    kind: str = "embeddings"  # what the bytes are: features, embeddings, gradients, weights, ids

    def __str__(self) -> str:
        return f"site {self.site}, {self.direction}, step {self.step}"


@dataclass
class Ledger:
    """Counts per (site, direction, peer) and per kind, of one worker; `take` hands out those since the last take."""

    rows: Counter = field(default_factory=Counter)
    bytes: Counter = field(default_factory=Counter)
    kinds: Counter = field(default_factory=Counter)
    wait_seconds: float = 0.0
    reduce_seconds: float = 0.0

    def sent(self, where: Where, peer: int, rows: int, size: int) -> None:
        self.rows[where.site, where.direction, peer] += rows
        self.bytes[where.site, where.direction, peer] += size
        self.kinds[where.kind] += size

    def take(self) -> Ledger:
        """The counts so far, as a ledger of their own; this one begins anew."""
        taken = Ledger(self.rows, self.bytes, self.kinds, self.wait_seconds, self.reduce_seconds)
        self.rows, self.bytes, self.kinds = Counter(), Counter(), Counter()
        self.wait_seconds = self.reduce_seconds = 0.0
        return taken
