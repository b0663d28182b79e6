"""AdaQP's bits by row and EC-Graph's predicted rows, literally: wires of `partition_parallel.Policy`, row by row."""

from __future__ import annotations

import numpy as np
from oracle.coded import nearest, stochastic
from oracle.full_graph import propagation
from oracle.links import Links
from oracle.partition_parallel import BACKWARD, FORWARD, Policy, Rows

from isthmus import kernels


class Adaqp(Policy):
    """Each sender gives its rows 2, 4 or 8 bits, again and again the row with the largest gain of variance per bit."""

    def __init__(self, links: Links, model: str, options: dict, seed: int):
        super().__init__(links, self.read)
        self.budget, self.every = options.get("budget", 4.0), options.get("reassign", 50)
        self.rounding, self.seed = options.get("rounding", "stochastic"), seed
        self.p = propagation(links.graph, model)
        self.traced: dict[tuple, float] = {}  # by site, way, owner, reader, node
        self.bits: dict[tuple, int] = {}

    def cross(self, t: int, site: int, way: int, rows: Rows) -> Rows:
        for sender in range(self.links.size):
            mine = []  # the rows of this sender, as the program lays them out
            for peer in range(self.links.size):
                q, r = (sender, peer) if way == FORWARD else (peer, sender)
                ids = self.links.rows[q, r]
                ids = ids[np.isin(ids, self.links.near(q, r))] if site == self.near_site else ids
                mine += [(site, way, q, r, int(node)) for node in ids]
            for key in mine:
                row = rows[key[3]][key[4]]
                self.traced[key] = self.traced.get(key, 0) + (row.max() - row.min()) ** 2
            if t % self.every == 0:
                self.assign(mine, way)
        return super().cross(t, site, way, rows)

    def assign(self, mine: list[tuple], way: int) -> None:
        """Buy bits for the rows, those first that gain most, until the budget is spent."""
        offers = []
        for key in mine:
            site, _, _, r, node = key
            read = (self.links.owner == r) & (self.links.graph.train_mask[:, 0] if site == self.near_site else True)
            harm = self.traced.pop(key) * ((self.p[read, node] ** 2).sum() if way == FORWARD else 1)
            offers += [(harm * ((2**b - 1.0) ** -2 - (4**b - 1.0) ** -2) / b, b, key) for b in (2, 4)]
            self.bits[key] = 2
        left = (self.budget - 2) * len(mine)
        for _, b, key in sorted(offers, key=lambda offer: -offer[0]):
            left -= b
            if left < 0:
                return
            self.bits[key] = 2 * b

    def read(self, t: int, site: int, way: int, q: int, r: int, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
        sender, reader = (q, r) if way == FORWARD else (r, q)
        key = kernels.stream(self.seed, t, site, way, sender, reader)
        bits, out = np.array([self.bits[site, way, q, r, int(node)] for node in ids]), np.empty_like(rows)
        for b in np.unique(bits).tolist():
            drawn = self.rounding == "stochastic"
            out[bits == b] = (
                stochastic(rows[bits == b], b, kernels.stream(key, b)) if drawn else nearest(rows[bits == b], b)
            )
        return out


class EcGraph:
    """A wire: exact rows every `period` steps; between, a row is read as predicted, as coded, or as their mean."""

    def __init__(self, bits: int = 4, period: int = 10):
        self.bits, self.period = bits, period
        self.base: dict[tuple, tuple[np.ndarray, np.ndarray]] = {}  # by link and node: row and rate
        self.left: dict[tuple, np.ndarray] = {}

    def __call__(self, t: int, site: int, way: int, q: int, r: int, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
        keys = [(site, q, r, int(node)) for node in ids]
        one = self.fed_back if way == BACKWARD else self.compensated
        return np.array([one(t, key, row) for key, row in zip(keys, rows, strict=True)])

    def fed_back(self, t: int, key: tuple, row: np.ndarray) -> np.ndarray:
        total = row + self.left.get(key, 0)
        sent = nearest(total[None], self.bits)[0]
        self.left[key] = total - sent
        return sent

    def compensated(self, t: int, key: tuple, row: np.ndarray) -> np.ndarray:
        if t % self.period == 0:
            known = self.base.get(key)
            self.base[key] = row, np.zeros_like(row) if known is None else (row - known[0]) / self.period
            return row
        base, rate = self.base[key]
        expected, coded = base + (t % self.period) * rate, nearest(row[None], self.bits)[0]
        return min([expected, coded, (expected + coded) / 2], key=lambda way: np.abs(way - row).sum())
