"""PSC-GCN, algorithms 1 and 2, literally; and its relatives: each step trains on a graph drawn τ steps before.

The random bits are the program's, since any others are as good; they are made here from the definitions that
`kernels.draw_weighted` and `kernels.draw_edges` state, and so is everything that follows from them.
"""

from __future__ import annotations

import numpy as np
from oracle.full_graph import propagation
from oracle.links import Links
from oracle.partition_parallel import FORWARD, Rows, Training
from oracle.pipegcn import Pipe
from oracle.random_edges import GOLDEN, mix64

from isthmus import kernels

LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
FLOOR = 1e-3  # share of the largest value: no row is so small that it could never be drawn again


def keys(stream: int, ids: np.ndarray) -> np.ndarray:
    return mix64(np.uint64(stream) + ids.astype(np.uint64) * GOLDEN)


def mix32(h: np.ndarray) -> np.ndarray:
    h = ((h ^ (h >> np.uint64(16))) * np.uint64(0x7FEB352D)) & LOW
    h = ((h ^ (h >> np.uint64(15))) * np.uint64(0x846CA68B)) & LOW
    return h ^ (h >> np.uint64(16))


def uniform(stream: int, nodes: int, coupled: bool = False) -> np.ndarray:
    """Return a number between 0 and 1 for every edge (i ← j), [N, N]; if coupled, the same for all edges of j."""
    key = keys(stream, np.arange(nodes))
    of_target = np.zeros_like(key) if coupled else key & LOW
    return (mix32((of_target[:, None] + (key >> HALF)[None, :]) & LOW) + 0.5) / 2.0**32


def probabilities(scores: np.ndarray, budget: float) -> np.ndarray:
    """Return p_ij by theorem 2 for the scores √a_j ‖y_ij‖; their sum is the budget B_i."""
    ascending, n = np.argsort(scores), len(scores)
    s, p = scores[ascending], np.ones(n)
    if budget < n:
        k = max(k for k in range(1, n + 1) if budget + k - n <= s[:k].sum() / s[k - 1])
        p[ascending[:k]] = (budget + k - n) * s[:k] / s[:k].sum()
    return p


class Drawn(Pipe):
    """Algorithm 1: a graph is drawn τ steps ahead, from what is known then, and its halo rows are sent at once.

    `draw` returns the weights of edges at step t, [N, N], given the norms last measured, [N] (None: not yet). Gradients
    travel as in PipeGCN: those of step t − τ, for its graph, are added at step t.
    """

    def __init__(self, links: Links, model: str, seed: int, rate: float, refresh: int, **late):
        super().__init__(links, **late)
        self.seed, self.rate, self.refresh, self.nodes = seed, rate, refresh, len(links.owner)
        self.p, self.mine = propagation(links.graph, model), [links.owner == r for r in range(links.size)]
        self.source = np.sqrt(np.diag(self.p)) if model == "gcn" else np.ones(self.nodes)  # P_ij = target_i source_j
        self.halo = [links.adjacency[mine].any(0) & ~mine for mine in self.mine]
        self.measured: dict[int, np.ndarray] = {}  # Σ_l ‖H_j^l W^{l+1}‖², [N], by step
        self.graphs: dict[int, np.ndarray] = {}
        self.mail: dict[tuple[int, int], Rows] = {}  # by site and step of use

    def look(self, t: int, rows: np.ndarray) -> None:
        """Measure the rows H^l W^{l+1}, at the steps of a refresh."""
        if t % self.refresh == 0:
            self.measured[t] = self.measured.get(t, 0) + (rows**2).sum(1)

    def sizes(self, t: int) -> np.ndarray | None:
        past = [s for s in self.measured if s < t - self.staleness]  # what is measured at s is known at s + 1
        return self.measured[max(past)] if past else None

    def weights(self, t: int) -> np.ndarray:
        if t not in self.graphs:
            self.graphs[t] = self.draw(t, self.sizes(t))
        return self.graphs[t]

    def drawn(self, t: int, q: int, r: int) -> np.ndarray:
        rows, kept = self.links.rows[q, r], self.links.adjacency & (self.weights(t) > 0)
        return rows[kept[self.mine[r]].any(0)[rows]]

    def features(self, t: int, site: int, rows: Rows) -> Rows:
        last = t + self.staleness
        for due in range(t if t == 0 and self.start == "warm" else last, last + 1):
            self.mail[site, due] = self.cross(due, site, FORWARD, rows)
        return self.mail.pop((site, t), [0 * block for block in rows])


class Neighbours(Drawn):
    """Algorithm 2: edge (i ← j) is kept with p_ij and counts 1/p_ij (eq. 15), or |N_i| over the number kept."""

    def __init__(
        self,
        *about,
        inner_weight: float = 1.1,
        coupled: bool = False,
        normalised: bool = False,
        least: int = 0,
        **given,
    ):
        super().__init__(*about, **given)
        self.a, self.coupled, self.normalised, self.least = inner_weight, coupled, normalised, least

    def draw(self, t: int, sizes: np.ndarray | None) -> np.ndarray:
        w, inner = np.eye(self.nodes), uniform(kernels.stream(self.seed, t, 0x95C), self.nodes)  # self loops stay
        for r, (mine, halo) in enumerate(zip(self.mine, self.halo, strict=True)):
            u = np.where(mine, inner, uniform(kernels.stream(self.seed, t, 0x95C, 1 + r), self.nodes, self.coupled))
            score = np.ones(self.nodes)
            if sizes is not None:  # target_i is in all scores of i alike
                score = np.sqrt(np.where(mine, self.a, 1) * sizes) * self.source
                score = np.maximum(score, FLOOR * score[mine | halo].max())
            for i in np.nonzero(mine)[0]:
                j = np.nonzero(self.links.adjacency[i])[0]
                p = probabilities(score[j], max(self.rate * len(j), min(len(j), self.least)))
                kept = u[i, j] < p
                w[i, j] = kept * (len(j) / max(kept.sum(), 1) if self.normalised else 1 / p)
        return w


class OptimalBoundary(Drawn):
    """Keep all inner edges; worker r keeps halo node j with q_j ∝ √(Σ_i P_ij²) ‖H_j W‖, and it counts 1/q_j."""

    def draw(self, t: int, sizes: np.ndarray | None) -> np.ndarray:
        w = np.ones((self.nodes, self.nodes))
        for r, (mine, halo) in enumerate(zip(self.mine, self.halo, strict=True)):
            j, q = np.nonzero(halo)[0], np.full(halo.sum(), self.rate)
            if sizes is not None:
                score = np.sqrt(sizes[j] * (self.p[mine][:, j] ** 2).sum(0))
                q = probabilities(np.maximum(score, FLOOR * score.max()), self.rate * len(j))
            q = q.astype(np.float32).astype(float)  # as the owner, who draws too, is told
            (key,) = keys(kernels.stream(self.seed, t, 0x0B5, r), np.zeros(1))
            w[np.ix_(mine, j)] = ((keys(int(key), j) >> HALF).astype(float) < q * 2.0**32) / q
        return w


class Measured(Training):
    """A training run that tells the policy the norms of rows. With a cache of features, site 0 reads a drawn graph."""

    def __init__(self, *about, cached: bool = False):
        super().__init__(*about)
        self.cached = cached

    def aggregate(self, t: int, site: int, s: np.ndarray) -> np.ndarray:
        if isinstance(self.policy, Drawn) and (site > 0 or self.cached or not self.narrow):
            self.policy.look(t, s if self.transforms_first(site) else s @ self.halves(site)[1].T)
        return super().aggregate(t, -1 if site == 0 and self.cached else site, s)  # any site but that of fixed rows
