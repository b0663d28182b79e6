"""The baselines of BNS-GCN's table 9, DropEdge and Boundary Edge Sampling: edges are dropped instead of nodes."""

from __future__ import annotations

import numpy as np
from oracle.links import Links
from oracle.partition_parallel import Policy, Wire

from isthmus import kernels

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
SALT = 0xED6E


def mix64(h: np.ndarray) -> np.ndarray:
    """Apply the finaliser of splitmix64."""
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


class RandomEdges(Policy):
    """Every edge that may be dropped is kept with probability p and counts 1/p; self loops are no edges.

    "All methods drop the same number of edges" (sec. 4.3): (1 − rate) E_cut of them. among = "boundary" (BES): edges
    between parts; "all" (DropEdge): any edge.
    """

    def __init__(self, links: Links, rate: float, among: str, seed: int = 0, wire: Wire | None = None):
        super().__init__(links, wire)
        self.seed, self.symmetric = seed, links.graph.symmetric
        self.masks: dict[int, np.ndarray] = {}
        cut = links.adjacency & links.crossing
        self.droppable = cut if among == "boundary" else links.adjacency
        self.p = rate if among == "boundary" else 1 - (1 - rate) * cut.sum() / links.adjacency.sum()

    def kept(self, t: int) -> np.ndarray:
        """Return the droppable edges that stay, bool [N, N]; drawn once per step."""
        if t not in self.masks:
            self.masks = {t: self.draw(t)}
        return self.masks[t]

    def draw(self, t: int) -> np.ndarray:
        """Draw the edges that stay; both directions of an undirected edge are kept or dropped together."""
        n = len(self.links.owner)
        i, j = np.meshgrid(np.arange(n, dtype=np.uint64), np.arange(n, dtype=np.uint64), indexing="ij")
        a, b = (np.minimum(i, j), np.maximum(i, j)) if self.symmetric else (i, j)
        key = np.uint64(kernels.stream(self.seed, t, SALT))
        bits = mix64(mix64(key + a * GOLDEN) + b * GOLDEN) >> np.uint64(32)
        return self.droppable & (bits.astype(float) < self.p * 2.0**32)

    def weights(self, t: int) -> np.ndarray:
        return np.where(self.droppable, self.kept(t) / self.p, 1.0)

    def drawn(self, t: int, q: int, r: int) -> np.ndarray:
        """Return the rows that cross: those that a kept edge reads."""
        rows = self.links.rows[q, r]
        read = self.kept(t)[self.links.owner == r].any(0)
        return rows[read[rows]]
