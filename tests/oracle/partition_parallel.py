"""Partition-parallel training, literally (BNS-GCN sec. 3.1): n workers in one process, dense, gradients by hand.

Worker r owns the nodes V_r and reads the halo nodes B_r. At layer l, with S^l the rows that are exchanged:

    T_i = Σ_{j ∈ V_r} P_ij w_ij S_j + Σ_{j ∈ B_r} P_ij w_ij seen^r_j           for i in V_r
    g^r_j = Σ_{i ∈ V_r} P_ij w_ij D_i for j in B_r,   dS_j = Σ_{i ∈ V_r} P_ij w_ij D_i + Σ_r arrived^r_j

with D the gradient by T. A policy says what is seen of S and what arrives of g: the systems differ in that alone. S^l
is the layer's input H^l, or its narrow side H^l Wᵀ: then site 0 is exact, since P X is computed once per run, and at
the last site only rows next to a training node cross.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from oracle.full_graph import propagation, softmax
from oracle.links import Links

from isthmus.graph.graph import Graph

FORWARD, BACKWARD = 1, 0
Rows = list[np.ndarray]  # per reader r, [N, F]: rows of its halo nodes (or their gradients); other rows are zero
Wire = Callable[..., np.ndarray]  # (step, site, way, owner, reader, rows, their nodes) → what is read back of them


class Policy:
    """The exact exchange: every row of every link, as it is, now. Other policies change one of the four."""

    near_site: int | None = None  # the site where only rows next to a training node cross
    weighs_all_rows = False  # whether sending a row depends on others, so that all of them cross

    @staticmethod
    def total(t: int, shares: list[np.ndarray]) -> np.ndarray:
        """Return the sum that all workers use of their gradients of the weights, each flat."""
        return sum(shares)

    def __init__(self, links: Links, wire: Wire | None = None):
        self.links = links
        self.wire = wire or (lambda t, site, way, q, r, rows, ids: rows)

    def drawn(self, t: int, q: int, r: int) -> np.ndarray:
        """Return the nodes whose rows r reads from q at step t."""
        return self.links.rows[q, r]

    def weights(self, t: int) -> np.ndarray | float:
        """Return w, the weight of an edge at step t."""
        return 1.0

    def weights_at(self, t: int, site: int) -> np.ndarray | float:
        """Return the weights of edges at one site."""
        return self.weights(t)

    def features(self, t: int, site: int, rows: Rows) -> Rows:
        """Return the rows that each reader uses at step t, given the rows that their owners have then."""
        return self.cross(t, site, FORWARD, rows)

    def gradients(self, t: int, site: int, rows: Rows) -> Rows:
        """Return the gradients that owners add at step t, from each reader, given those that readers have then."""
        return self.cross(t, site, BACKWARD, rows)

    def cross(self, t: int, site: int, way: int, rows: Rows) -> Rows:
        """Send rows over all links at once."""
        read = [np.zeros_like(block) for block in rows]
        for q, r in self.links.rows:
            ids = self.drawn(t, q, r)
            if site == self.near_site:
                ids = ids[np.isin(ids, self.links.near(q, r))]
            if len(ids):
                read[r][ids] = self.wire(t, site, way, q, r, rows[r][ids], ids)
        return read


class Training:
    """One run. weights: W^1, b^1, W^2, b^2, … as in full_graph.py; `losses` has that of every step so far."""

    def __init__(self, graph: Graph, model: str, weights: list[np.ndarray], lr: float, policy: Policy, narrow: bool):
        self.graph, self.model, self.lr, self.policy, self.narrow = graph, model, lr, policy, narrow
        self.weights, self.p = [w.copy() for w in weights], propagation(graph, model)
        self.mine = [policy.links.owner[:, None] == r for r in range(policy.links.size)]  # [N, 1] each
        self.losses: list[float] = []
        if narrow and not policy.weighs_all_rows:
            policy.near_site = len(weights) // 2 - 1

    def run(self, steps: int) -> list[float]:
        for t in range(steps):
            self.step(t)
        return self.losses

    def aggregate(self, t: int, site: int, s: np.ndarray) -> np.ndarray:
        if site == 0 and self.narrow:
            return self.p @ s
        seen = self.policy.features(t, site, [np.where(mine, 0, s) for mine in self.mine])
        w = self.p * self.policy.weights_at(t, site)
        return sum(np.where(mine, w @ np.where(mine, s, rows), 0) for mine, rows in zip(self.mine, seen, strict=True))

    def spread(self, t: int, site: int, d: np.ndarray) -> np.ndarray:
        """Return dS for the gradient D."""
        w = self.p * self.policy.weights_at(t, site)
        back = [w.T @ np.where(mine, d, 0) for mine in self.mine]
        halo = [np.where(mine, 0, rows) for mine, rows in zip(self.mine, back, strict=True)]
        own = sum(np.where(mine, rows, 0) for mine, rows in zip(self.mine, back, strict=True))
        return own + sum(self.policy.gradients(t, site, halo))

    def halves(self, layer: int) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
        """Return W_self (None for gcn), the W of the aggregated rows, b."""
        w, b = self.weights[2 * layer], self.weights[2 * layer + 1]
        width = w.shape[1] // 2
        return (None, w, b) if self.model == "gcn" else (w[:, :width], w[:, width:], b)

    def transforms_first(self, layer: int) -> bool:
        w = self.halves(layer)[1]
        return self.narrow and layer > 0 and w.shape[0] <= w.shape[1]

    def step(self, t: int) -> None:
        train, layers = self.graph.train_mask[:, 0], range(len(self.weights) // 2)
        n, z, inputs, means = train.sum(), self.graph.x, [], []
        for layer in layers:
            h = z if layer == 0 else np.maximum(z, 0)
            w_self, w, b = self.halves(layer)
            if self.transforms_first(layer):
                means.append(h)
                z = self.aggregate(t, layer, h @ w.T) + b
            else:
                means.append(self.aggregate(t, layer, h))  # as it was used, old rows included
                z = means[-1] @ w.T + b
            z = z if w_self is None else z + h @ w_self.T
            inputs.append(h)
        q = softmax(z)
        self.losses.append(float(-np.log(q[train, self.graph.y[train]]).sum() / n))
        j = (q - np.eye(self.graph.num_classes)[self.graph.y]) * train[:, None] / n
        gradients: list[list[np.ndarray]] = [[] for _ in self.mine]  # of each worker
        for layer in reversed(layers):
            (w_self, w, _), first = self.halves(layer), self.transforms_first(layer)
            d = self.spread(t, layer, j) if first else j
            for mine, found in zip(self.mine, gradients, strict=True):
                of_w = (d * mine).T @ means[layer]
                of_w = of_w if w_self is None else np.concatenate([(j * mine).T @ inputs[layer], of_w], 1)
                found[:0] = [of_w, (j * mine).sum(0)]
            if layer:
                back = d @ w if first else self.spread(t, layer, j @ w)
                j = (back if w_self is None else back + j @ w_self) * (inputs[layer] > 0)
        total = self.policy.total(t, [np.concatenate([g.ravel() for g in found]) for found in gradients])
        ends = np.cumsum([w.size for w in self.weights])[:-1]
        self.weights = [
            w - self.lr * g.reshape(w.shape) for w, g in zip(self.weights, np.split(total, ends), strict=True)
        ]
