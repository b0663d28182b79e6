"""BNS-GCN, algorithm 1: each step trains on all inner nodes and a random share of the halo nodes."""

from __future__ import annotations

import numpy as np
from oracle.links import Links
from oracle.partition_parallel import Policy, Wire

from isthmus.sample import Boundary


class BoundaryNodes(Policy):
    """Draw s of a link's m rows per step (line 4); they count m/s, and the others are absent (line 5).

    The draw is the program's, since any other is as good; everything that follows from it is written down here.
    """

    def __init__(self, links: Links, rate: float, size: str = "unbiased", seed: int = 0, wire: Wire | None = None):
        super().__init__(links, wire)
        self.sampler, self.seed = Boundary(rate, size), seed

    def drawn(self, t: int, q: int, r: int) -> np.ndarray:
        """Return U_i (line 4), the same for every layer of the step and for both passes (lines 8–13)."""
        rows = self.links.rows[q, r]
        return rows[self.sampler.rows(self.seed, t, q, r, len(rows)).numpy()]

    def weights(self, t: int) -> np.ndarray:
        """Return H / p "towards an unbiased feature estimation" (sec. 3.2), with the achieved p = s / m.

        A link that mostly draws no row at all (p m < 1) has no achieved share; there p itself is meant.
        """
        w = np.where(self.links.crossing, 0.0, 1.0)
        for (q, r), rows in self.links.rows.items():
            ids = self.drawn(t, q, r)
            if len(ids):
                p = self.sampler.rate
                w[np.ix_(self.links.owner == r, ids)] = len(rows) / len(ids) if p * len(rows) >= 1 else 1 / p
        return w
