"""The guard, literally: a pipeline runs beside the exact exchange, and takes over while its error is small."""

from __future__ import annotations

import numpy as np
from oracle.links import Links
from oracle.partition_parallel import BACKWARD, FORWARD, Policy, Rows
from oracle.pipegcn import Pipe


class Decisions:
    """Exact until the error was at most half of ``limit`` for ``patience`` steps; again after it was above that half,
    and twice what it had been then.

    The error is a moving average that begins at 0, and moves halfway to each measurement. Each return to exact rows
    doubles the patience, up to 80 steps.
    """

    def __init__(self, limit: float, patience: int = 10):
        self.limit, self.patience, self.exact, self.calm, self.error = limit, patience, True, 0, 0.0

    def hear(self, measured: float | None) -> bool:
        """Return whether the next step is exact, after one that measured this error, if it did."""
        if measured is not None:
            self.error = (self.error + measured) / 2
        self.calm = self.calm + 1 if self.error <= self.limit / 2 else 0
        if self.exact:
            self.exact, self.found = self.calm < self.patience, self.error
        elif self.error > self.limit / 2 and self.error > 2 * self.found:
            self.exact, self.patience = True, min(80, 2 * self.patience)
        return self.exact


class Guarded(Policy):
    """PipeGCN with a guard. ``exact`` has what was done at each step."""

    def __init__(self, links: Links, staleness: int, limit: float):
        super().__init__(links)
        self.staleness, self.decisions = staleness, Decisions(limit)
        self.began, self.pipe = 0, Pipe(links, staleness)
        self.sums: dict[int, dict[int, np.ndarray]] = {}  # by step and site: squares of the error and of the rows
        self.exact: list[bool] = []

    def begin(self, t: int) -> None:
        if len(self.exact) > t:
            return
        before = self.exact[-1] if self.exact else True
        self.exact.append(self.decisions.hear(self.measured(t - 1)) if t else True)
        if before and not self.exact[-1]:
            self.began, self.pipe = t, Pipe(self.links, self.staleness)

    def measured(self, t: int) -> float | None:
        """Return the error of step t, if it was measured: that of rows sent at every fourth step, when they are due.

        When the pipe begins anew, the rows that are under way to the watch are gone.
        """
        sent = t - self.staleness
        if sent % 4 or sent < self.began:
            return None
        return max(np.sqrt(gap / size) for gap, size in self.sums[t].values())

    def features(self, t: int, site: int, rows: Rows) -> Rows:
        self.begin(t)
        self.pipe.near_site = self.near_site
        fresh = self.cross(t, site, FORWARD, rows)
        held = self.pipe.late(t - self.began, site, FORWARD, rows)
        gap = sum(np.square(a - b).sum() for a, b in zip(held, fresh, strict=True))
        self.sums.setdefault(t, {})[site] = np.array([gap, sum(np.square(block).sum() for block in fresh)])
        return fresh if self.exact[t] else held

    def gradients(self, t: int, site: int, rows: Rows) -> Rows:
        fresh = self.cross(t, site, BACKWARD, rows)
        return fresh if self.exact[t] else self.pipe.late(t - self.began, site, BACKWARD, rows)
