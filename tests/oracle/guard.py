"""The guard, literally: a pipeline runs beside the exact exchange, and takes over while its error is small."""

from __future__ import annotations

import numpy as np
from oracle.links import Links
from oracle.partition_parallel import BACKWARD, FORWARD, Policy, Rows
from oracle.pipegcn import Pipe


class Decisions:
    """Exact until the error was at most ``limit`` for ``patience`` steps; again after it was above twice that.

    Each return to exact rows doubles the patience, up to 80 steps.
    """

    def __init__(self, limit: float, patience: int = 10):
        self.limit, self.patience, self.exact, self.calm = limit, patience, True, 0

    def hear(self, error: float) -> bool:
        """Return whether the next step is exact."""
        self.calm = self.calm + 1 if error <= self.limit else 0
        if self.exact:
            self.exact = self.calm < self.patience
        elif error > 2 * self.limit:
            self.exact, self.patience = True, min(80, 2 * self.patience)
        return self.exact


class Guarded(Policy):
    """PipeGCN with a guard. ``errors`` and ``exact`` have what was found and done at each step."""

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
        self.exact.append(self.decisions.hear(self.errors[t - 1]) if t else True)
        if before and not self.exact[-1]:
            self.began, self.pipe = t, Pipe(self.links, self.staleness)

    @property
    def errors(self) -> list[float]:
        return [max(np.sqrt(gap / size) for gap, size in self.sums[t].values()) for t in sorted(self.sums)]

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
