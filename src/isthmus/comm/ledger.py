"""The ledger: counts what crosses the links, where it is sent, and how long workers wait for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

PROBE = "probe"  # the kind of bytes that only a measurement sends, not the recipe


class Where(NamedTuple):
    """The place of a transfer in a run; every error and every count carries it."""

    site: int | str  # the k-th exchange of a forward pass, or a name such as "weights"
    pass_: str  # "forward" (rows) or "backward" (their gradients), with a leg if need be (`ChannelId`); or "reduce"
    step: int
    kind: str = "embeddings"  # the content of the bytes: features, embeddings, gradients, weights, ids, probe

    def __str__(self) -> str:
        return f"site {self.site}, {self.pass_}, step {self.step}"


@dataclass
class Ledger:
    """The counts of one worker, per (site, pass, peer) and per kind; `take` hands out those since the last take."""

    rows: Counter = field(default_factory=Counter)
    bytes: Counter = field(default_factory=Counter)
    kinds: Counter = field(default_factory=Counter)
    wait_seconds: float = 0.0
    under_way_seconds: float = 0.0  # from sending until nothing was left to wait for, summed over transfers
    reduce_seconds: float = 0.0
    sample_seconds: float = 0.0
    rows_used: int = 0
    age_sum: float = 0.0  # summed over the rows used
    age_max: int = 0
    cache_hits: int = 0  # rows that a step read and found in the cache
    cache_misses: int = 0
    rows_local: int = 0  # rows of other workers that were read from their files, which are on this machine

    def sent(self, where: Where, peer: int, rows: int, size: int) -> None:
        if where.kind != PROBE:
            self.rows[where.site, where.pass_, peer] += 0 if where.kind == "ids" else rows
            self.bytes[where.site, where.pass_, peer] += size
            self.kinds[where.kind] += size

    def used(self, rows: int, age_sum: float, age_max: int) -> None:
        """Count rows of other workers that were read, and their ages in steps."""
        self.rows_used += rows
        self.age_sum += age_sum
        self.age_max = max(self.age_max, age_max)

    def between(self, rank: int, hosts: Sequence[int]) -> tuple[int, int]:
        """Return the rows and bytes that worker ``rank`` sent to other hosts, given the host of every worker."""
        outer = [link for link in self.bytes if hosts[link[2]] != hosts[rank]]
        return sum(self.rows[link] for link in outer), sum(self.bytes[link] for link in outer)

    @property
    def hidden(self) -> float | None:
        """The share of the time with transfers under way in which this worker did not wait; None without transfers."""
        return None if not self.under_way_seconds else 1 - min(1.0, self.wait_seconds / self.under_way_seconds)

    @property
    def mean_age(self) -> float:
        return self.age_sum / max(self.rows_used, 1)

    def add(self, other: Ledger) -> None:
        """Add the counts of another ledger."""
        for name in ("rows", "bytes", "kinds"):
            getattr(self, name).update(getattr(other, name))
        for name in (
            *("wait_seconds", "under_way_seconds", "reduce_seconds", "sample_seconds"),
            *("cache_hits", "cache_misses", "rows_local"),
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.used(other.rows_used, other.age_sum, other.age_max)

    def take(self) -> Ledger:
        """Return the counts so far as a ledger of their own, and start again from zero."""
        taken = replace(self)
        for name, value in vars(Ledger()).items():
            setattr(self, name, value)
        return taken
