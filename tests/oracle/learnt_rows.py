"""Learnt rows of nodes, literally: one process, a dense nn.Embedding of all nodes, one row after another.

Only the nodes of a step's batch are updated: w ← w - lr d, with d = g (sgd), g / (√Σg² + 1e-10) over the row's updates
so far (adagrad), or Adam's direction with the means and the number of updates of that row alone (adam).
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import nn


class LearntRows:
    def __init__(self, first: torch.Tensor, optimizer: str, lr: float):
        self.embedding = nn.Embedding.from_pretrained(first.clone(), freeze=False)
        self.optimizer, self.lr = optimizer, lr
        self.state: dict[int, dict[str, torch.Tensor]] = {}

    @property
    def weight(self) -> torch.Tensor:
        return self.embedding.weight

    @torch.no_grad()
    def update(self, nodes: list[int], gradient: torch.Tensor) -> None:
        for node in nodes:
            self.weight[node] -= self.lr * self.direction(node, gradient[node])

    def direction(self, node: int, g: torch.Tensor) -> torch.Tensor:
        zero = torch.zeros_like(g)
        state = self.state.setdefault(node, {"sum": zero, "mean": zero, "square": zero, "updates": torch.tensor(0)})
        state["updates"] = state["updates"] + 1
        state["sum"] = state["sum"] + g**2
        state["mean"] = 0.9 * state["mean"] + 0.1 * g
        state["square"] = 0.999 * state["square"] + 0.001 * g**2
        k = int(state["updates"])
        if self.optimizer == "sgd":
            return g
        if self.optimizer == "adagrad":
            return g / (state["sum"].sqrt() + 1e-10)
        return state["mean"] / (1 - 0.9**k) / (state["square"].sqrt() / sqrt(1 - 0.999**k) + 1e-8)
