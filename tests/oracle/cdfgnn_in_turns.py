"""CDFGNN as Isthmus runs it by default: every link is a cache of its own, whose rows take turns to be compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from oracle.cdfgnn import Cache, Cdfgnn

TURNS = 3


@dataclass
class InTurns(Cdfgnn):
    links: dict[tuple[int, int], np.ndarray] | None = None  # by (part, owner): its mirrors, in the order of the link

    def synchronise(self, pass_: str, layer: int, z: list[np.ndarray]) -> list[np.ndarray]:
        """Mirrors send some of their sums, masters add what they hold of them to their own, and send some totals."""
        assert self.links is not None, "a link has an order"
        own, none = self.owner == np.arange(len(z))[:, None], np.zeros((len(z), *z[0].shape))
        cache = self.caches.setdefault((pass_, layer), Cache(*(none.copy() for _ in range(4))))
        gathered, scattered = np.zeros(own.shape, bool), np.zeros(len(self.owner), bool)
        for (i, _), at in self.links.items():
            gathered[i][self.cross(z[i], cache.share[i], cache.meant[i], at)] = True
        total = sum(z[i] * own[i][:, None] for i in range(len(z))) + cache.share.sum(0)
        for (i, _), at in self.links.items():
            scattered[self.cross(total, cache.agreed[i], cache.told[i], at)] = True
        self.sent[-1][pass_, layer, "gather"], self.sent[-1][pass_, layer, "scatter"] = gathered, scattered
        return [np.where(own[i][:, None], total, cache.agreed[i]) * self.replica[i][:, None] for i in range(len(z))]

    def cross(self, rows: np.ndarray, held: np.ndarray, meant: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Move the rows ``at`` of a link by their mean change, then send those that have moved and whose turn it is."""
        if not len(at):
            return at
        drift = (rows[at] - meant[at]).mean(0)
        held[at] += drift
        meant[at] += drift
        resync = bool(self.options.resync) and self.step % self.options.resync == 0
        turn = (np.arange(len(at)) + self.step) % TURNS == 0
        leaving = at[self.moved(rows[at], meant[at]) & (turn | (self.step == 0) | resync)]
        held[leaving] += self.coded(rows[leaving] - meant[leaving])
        meant[leaving] = held[leaving] if self.options.follows else rows[leaving]
        return leaving
