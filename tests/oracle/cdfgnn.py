"""CDFGNN, literally: algs. 1 and 2 on dense matrices, part after part, with the rulings of docs/recipes/cdfgnn.md.

Every part has its own copy of all V rows, of which those of its replicas count. A GCN without dropout; plain SGD.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from oracle.coded import nearest


@dataclass
class Options:
    epsilon: float = 0.01
    adapt: bool = True
    bits: int = 8
    resync: int = 0
    follows: bool = True  # error feedback
    singletons: bool = False  # thresholded as well
    as_printed: bool = False


@dataclass
class Cache:
    """The cached values of one layer and pass."""

    share: np.ndarray  # z̃_{i,u} as the master knows it, [P, V, F]
    meant: np.ndarray  # z̃_{i,u} as the sender remembers it
    agreed: np.ndarray  # z̃_{·,u}, which all replicas hold, [V, F]
    told: np.ndarray  # as the master remembers it


@dataclass
class Cdfgnn:
    adjacency: np.ndarray  # [P, V, V]: Â of every part's edges, self loops at masters
    replica: np.ndarray  # bool [P, V]
    owner: np.ndarray  # [V]
    weights: list[tuple[np.ndarray, np.ndarray]]  # (W [out, in], b [out])
    options: Options
    caches: dict[tuple[str, int], Cache] = field(default_factory=dict)
    sent: list[dict[tuple[str, int, str], np.ndarray]] = field(default_factory=list)  # by step
    path: list[float] = field(default_factory=list)  # ε after each step
    mean: float | None = None

    def train(self, x: np.ndarray, y: np.ndarray, train: np.ndarray, steps: int, lr: float) -> list[float]:
        parts, losses, self.epsilon = range(len(self.replica)), [], self.options.epsilon
        for step in range(steps):
            self.step = step
            self.sent.append({})
            rows = [[x * here[:, None] for here in self.replica]]
            for layer, (weight, bias) in enumerate(self.weights):
                z = self.synchronise("forward", layer, [self.adjacency[i] @ rows[-1][i] @ weight.T for i in parts])
                last = layer == len(self.weights) - 1
                rows.append([(z[i] + bias) if last else np.maximum(z[i] + bias, 0) for i in parts])
            logits = np.array([rows[-1][self.owner[v]][v] for v in range(len(x))])
            chance = np.exp(logits - logits.max(1, keepdims=True))
            chance /= chance.sum(1, keepdims=True)
            losses.append(float(-np.log(chance[train, y[train]]).mean()))
            right = float((logits.argmax(1) == y)[train].mean())
            gradient = (chance - np.eye(logits.shape[1])[y]) * (train / train.sum())[:, None]
            delta = [gradient * (self.owner == i)[:, None] for i in parts]  # the loss is that of masters
            update = []
            for layer in reversed(range(len(self.weights))):
                weight, bias = self.weights[layer]
                by_bias = sum(one.sum(0) for one in delta)  # every replica's own share, each once
                total = self.synchronise("backward", layer, delta)
                back = [self.adjacency[i].T @ total[i] for i in parts]
                update.append((weight - lr * sum(b.T @ h for b, h in zip(back, rows[layer], strict=True)),
                               bias - lr * by_bias))  # fmt: skip
                delta = [(back[i] @ weight) * (rows[layer][i] > 0) for i in parts]
            self.weights = update[::-1]
            self.adapt(right)
        return losses

    def synchronise(self, pass_: str, layer: int, z: list[np.ndarray]) -> list[np.ndarray]:
        """Alg. 2: mirrors send, masters add, active vertices are sent to all their mirrors."""
        parts, (count, width) = len(z), z[0].shape
        zeros = np.zeros((count, width))
        many = np.zeros((parts, count, width))
        cache = self.caches.setdefault((pass_, layer), Cache(many, many.copy(), zeros, zeros.copy()))
        several = self.replica.sum(0) > 1
        gathered = np.zeros((parts, count), bool)
        active = np.zeros(count, bool)
        for i in range(parts):
            mirror, master = self.replica[i] & (self.owner != i), self.owner == i
            moved = self.moved(z[i], cache.meant[i])
            send = mirror & moved
            gathered[i] = send
            cache.share[i][send] += self.coded(z[i][send] - cache.meant[i][send])
            cache.meant[i][send] = cache.share[i][send] if self.options.follows else z[i][send]
            held = master & (several | self.options.singletons)
            take = (held & moved) | (master & ~held)
            cache.share[i][take] = cache.meant[i][take] = z[i][take]
            active |= send | (take & master)
        total = cache.share.sum(0)
        resync = bool(self.options.resync) and self.step % self.options.resync == 0
        scattered = several & (active | resync)
        cache.agreed[scattered] += self.coded(total[scattered] - cache.told[scattered])
        cache.told[scattered] = cache.agreed[scattered] if self.options.follows else total[scattered]
        self.sent[-1][pass_, layer, "gather"], self.sent[-1][pass_, layer, "scatter"] = gathered, scattered
        at_masters = np.where(several[:, None], cache.told, total)
        return [np.where((self.owner == i)[:, None], at_masters, cache.agreed) * self.replica[i][:, None]
                for i in range(parts)]  # fmt: skip

    def moved(self, new: np.ndarray, old: np.ndarray) -> np.ndarray:
        if self.options.resync and self.step % self.options.resync == 0:
            return np.ones(len(new), bool)
        return np.abs(new - old).max(1) > self.epsilon * np.abs(old).max(1)

    def coded(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.options.bits == 32 or not len(rows) else nearest(rows, self.options.bits)

    def adapt(self, accuracy: float) -> None:
        """Eq. 6 by its prose (or as printed), and eq. 7."""
        mean = accuracy if self.mean is None else self.mean
        up, down = accuracy > mean + 0.02, accuracy < mean - 0.001
        if self.options.as_printed:
            up, down = down, up
        if self.options.adapt and up and self.epsilon < 0.3:
            self.epsilon = min(1.05 * self.epsilon, self.epsilon + 0.01, 0.3)
        elif self.options.adapt and down and self.epsilon > 0.001:
            self.epsilon = max(0.9 * self.epsilon, self.epsilon - 0.01, 0.001)
        self.mean = 0.8 * mean + 0.2 * accuracy
        self.path.append(self.epsilon)
