"""SANCUS, algorithms 3–6: a worker whose rows are young enough, or have not moved, does not send."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from oracle.links import Links
from oracle.partition_parallel import BACKWARD, FORWARD, Policy, Rows, Wire

Clock = Callable[[int, int], bool]  # (step, worker): does it send?


def epoch_fixed(bound: int) -> Clock:
    """Return the clock of algorithm 4: Ver − Ver(j) > ε_E."""
    return lambda t, worker: t % (bound + 1) == 0


def epoch_adaptive(bound: int) -> Clock:
    """Return the clock of algorithm 5, whose versions settle to staggered turns (figure 14b)."""
    return lambda t, worker: t == 0 or (t - worker % (bound + 1)) % (bound + 1) == 0


class Skip(Policy):
    """A policy that skips sends: `features` and `gradients` are clocks (None: always); gap: algorithm 6 for features.

    clip: line 3 of the backward pass, GRADIENT_CLIP of what a worker sends at a layer, to clip · n^power.
    """

    def __init__(
        self,
        links: Links,
        features: Clock | None = None,
        gradients: Clock | None = None,
        gap: float | None = None,
        clip: float = 0.0,
        power: float = -0.5,
        wire: Wire | None = None,
    ):
        super().__init__(links, wire)
        self.clocks, self.gap, self.weighs_all_rows = {FORWARD: features, BACKWARD: gradients}, gap, gap is not None
        self.limit = clip * links.size**power
        self.cache: dict[tuple[int, int], Rows] = {}  # H̃, by way and site

    def features(self, t: int, site: int, rows: Rows) -> Rows:
        return self.skip(t, site, FORWARD, rows)

    def gradients(self, t: int, site: int, rows: Rows) -> Rows:
        if self.limit:
            norms = [np.linalg.norm(block) for block in rows]
            rows = [b if norm <= self.limit else b * self.limit / norm for b, norm in zip(rows, norms, strict=True)]
        return self.skip(t, site, BACKWARD, rows)

    def skip(self, t: int, site: int, way: int, rows: Rows) -> Rows:
        held = self.cache.setdefault((way, site), [np.zeros_like(block) for block in rows])
        active = [self.active(t, way, worker, rows, held) for worker in range(self.links.size)]
        fresh = self.cross(t, site, way, rows)
        for q, r in self.links.rows:
            if active[q if way == FORWARD else r]:
                ids = self.drawn(t, q, r)
                held[r][ids] = fresh[r][ids]
        return [block.copy() for block in held]

    def active(self, t: int, way: int, worker: int, rows: Rows, held: Rows) -> bool:
        clock = self.clocks[way]
        if clock is not None:
            return clock(t, worker)
        if way == BACKWARD or self.gap is None:
            return True
        readers = range(self.links.size)
        new = np.concatenate([rows[r][self.links.rows[worker, r]] for r in readers])
        old = np.concatenate([held[r][self.links.rows[worker, r]] for r in readers])
        return bool(np.linalg.norm(new - old) > self.gap * np.linalg.norm(old))
