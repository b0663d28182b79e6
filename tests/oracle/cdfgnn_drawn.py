"""CDFGNN as Isthmus runs it by default: every link is a cache of its own, and its rows are drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from oracle.cdfgnn import Cache, Cdfgnn
from oracle.psc import keys

from isthmus import kernels

WAYS = {("forward", "gather"): 1, ("forward", "scatter"): 0, ("backward", "gather"): 0, ("backward", "scatter"): 1}
SEED, DRAWS = 0, 0xD0


@dataclass
class Drawn(Cdfgnn):
    links: dict[tuple[int, int], np.ndarray] | None = None  # by (part, owner): its mirrors, in the order of the link
    chance: float = 0.4

    def synchronise(self, pass_: str, layer: int, z: list[np.ndarray]) -> list[np.ndarray]:
        """Mirrors send some of their sums, masters add what they read of them to their own, and send some totals."""
        assert self.links is not None, "a link has an order"
        own, none = self.owner == np.arange(len(z))[:, None], np.zeros((len(z), *z[0].shape))
        cache = self.caches.setdefault((pass_, layer), Cache(*(none.copy() for _ in range(4))))
        gathered, scattered = np.zeros(own.shape, bool), np.zeros(len(self.owner), bool)
        total, read = sum(z[i] * own[i][:, None] for i in range(len(z))), none.copy()
        for (i, j), at in self.links.items():
            key = kernels.stream(SEED, DRAWS, self.step, layer, WAYS[pass_, "gather"], i, j)
            sent, used = self.cross(z[i], cache.share[i], cache.meant[i], at, key)
            gathered[i][sent], read[i][at] = True, used
        total = total + read.sum(0)
        for (i, j), at in self.links.items():
            key = kernels.stream(SEED, DRAWS, self.step, layer, WAYS[pass_, "scatter"], i, j)
            sent, used = self.cross(total, cache.agreed[i], cache.told[i], at, key)
            scattered[sent], read[i][at] = True, used
        self.sent[-1][pass_, layer, "gather"], self.sent[-1][pass_, layer, "scatter"] = gathered, scattered
        return [np.where(own[i][:, None], total, read[i]) * self.replica[i][:, None] for i in range(len(z))]

    def cross(
        self, rows: np.ndarray, held: np.ndarray, meant: np.ndarray, at: np.ndarray, key: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Send some of a link's rows ``at``; return which, and the rows that the reader uses at this step."""
        moved, size = np.abs(rows[at] - meant[at]).max(1), np.abs(meant[at]).max(1)
        share = np.array([0 if m == 0 else 1 if s == 0 else min(m / (self.epsilon * s), 1)
                          for m, s in zip(moved, size, strict=True)])  # fmt: skip
        level = np.ceil(255 * self.chance * share)
        if self.step == 0 or (self.options.resync and self.step % self.options.resync == 0):
            level = np.full(len(at), 255)
        drawn = keys(key, np.arange(len(at))).view(np.int64) % 255 < level
        leaving, used = at[drawn], held[at].copy()
        change = self.coded(rows[leaving] - meant[leaving])
        used[drawn] += change * (255 / level[drawn])[:, None]
        held[leaving] = rows[leaving] if self.options.bits == 32 else held[leaving] + change
        meant[leaving] = held[leaving] if self.options.follows else rows[leaving]
        return leaving, used
