"""What recipe isthmus adds to PSC-GCN's relatives, literally: few neighbours at the last site, coded differences."""

from __future__ import annotations

import numpy as np
from oracle.coded import nearest
from oracle.partition_parallel import FORWARD, Wire
from oracle.psc import FLOOR, OptimalBoundary, probabilities, uniform

from isthmus import kernels


class Thinned(OptimalBoundary):
    """The same, and at the last site training nodes read few of their inner neighbours j, with p_ij ∝ ‖H_j W‖."""

    def __init__(self, *about, last_rate: float, least: int, **given):
        super().__init__(*about, **given)
        self.last_rate, self.least = last_rate, least

    def weights_at(self, t: int, site: int) -> np.ndarray:
        w, sizes = self.weights(t).copy(), self.sizes(t)
        if site != self.near_site:
            return w
        u = uniform(kernels.stream(self.seed, t, 0x7A1), self.nodes, coupled=True)
        for mine in self.mine:
            score = np.ones(self.nodes) if sizes is None else np.sqrt(sizes) * self.source
            score = np.maximum(score, FLOOR * score[mine].max())
            for i in np.nonzero(mine & self.links.graph.train_mask[:, 0])[0]:
                j = np.nonzero(self.links.adjacency[i] & mine)[0]
                if len(j):
                    p = probabilities(score[j], max(self.last_rate * len(j), min(len(j), self.least)))
                    w[i, j] = (u[i, j] < p) / p
        return w


def differences(bits: int) -> Wire:
    """Return a wire of differences: y = x − base is coded, and both ends add what is read back to base; per row."""
    base: dict[tuple[int, ...], np.ndarray] = {}

    def wire(t: int, site: int, way: int, q: int, r: int, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
        old = np.array([base.get((site, q, r, j), 0 * x) for j, x in zip(ids, rows, strict=True)])
        new = nearest(rows - old, bits) + old if way == FORWARD else nearest(rows, bits)
        base.update({(site, q, r, j): x for j, x in zip(ids, new, strict=True) if way == FORWARD})
        return new

    return wire
