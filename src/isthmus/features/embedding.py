"""Learnt rows of nodes, such as of those without features: every worker has those of its own nodes and updates them.

A row is updated only at steps that read it, by an optimizer whose state is kept row by row::

    sgd       w ← w - lr g
    adagrad   s ← s + g²;                                    w ← w - lr g / (√s + 1e-10)
    adam      m ← β₁ m + (1-β₁) g;  v ← β₂ v + (1-β₂) g²;    w ← w - lr (m / (1-β₁ᵏ)) / (√(v / (1-β₂ᵏ)) + 1e-8)

with k the number of updates of that row, and g the sum of all gradients of the row at that step.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.errors import InputError, WorkerError

OPTIMIZERS: Mapping[str, tuple[str, ...]] = {"sgd": (), "adagrad": ("square",), "adam": ("mean", "square", "updates")}
"""The state that each optimizer keeps for a row."""
REDUCES = ("sum", "mean")
_SALT = 0xE8BED
_BETAS = (0.9, 0.999)


@dataclass(frozen=True)
class EmbeddingConfig:
    """The form of a learnt embedding and the rule of its updates."""

    width: int
    lr: float = 0.01
    optimizer: str = "adam"
    reduce: str = "sum"
    """sum: a row's gradient is the sum of those that workers send; mean: divided by their number."""
    hogwild: bool = False
    """Update rows as gradients arrive and read them at any time, as DistDGL does: not reproducible."""

    def __post_init__(self) -> None:
        if self.width < 1:
            raise InputError(f"an embedding has rows of at least 1 number, not {self.width}")
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise InputError(f"the learning rate of an embedding must be above 0, not {self.lr:g}")
        if self.optimizer not in OPTIMIZERS:
            raise InputError(f"unknown optimizer {self.optimizer!r} of embeddings: use one of {', '.join(OPTIMIZERS)}")
        if self.reduce not in REDUCES:
            raise InputError(f"unknown reduce {self.reduce!r} of embeddings: use {' or '.join(REDUCES)}")


class Embedding:
    """One worker's shard: the rows of its n nodes, [n, width], and the state of their optimizer.

    Steps are kept apart: the rows of step t are readable once the gradients of all ``workers`` for step t - 1 are in.
    """

    def __init__(self, config: EmbeddingConfig, original: Tensor, seed: int, dtype: torch.dtype, workers: int = 1):
        """``original``: the ids of the nodes, int64 [n]; first rows are a function of (seed, id)."""
        self.config, self.workers = config, workers
        self.rows = first_rows(original, config.width, seed).to(dtype)
        self.state = {name: self._empty(name) for name in OPTIMIZERS[config.optimizer]}
        self.step = 0
        self._arrived: dict[int, list[tuple[Tensor, Tensor]]] = {}  # gradients of this step, by worker
        self._complete: set[int] = set()
        self._turn = threading.Condition()

    def _empty(self, name: str) -> Tensor:
        return torch.zeros_like(self.rows[:, 0] if name == "updates" else self.rows)

    @property
    def width(self) -> int:
        return self.config.width

    def read(self, rows: Tensor, step: int, timeout: float) -> Tensor:
        """Return some rows (int64) as they are at a step, after waiting for the gradients of the step before."""
        with self._turn:
            self.wait_for(step, timeout)
            return self.rows[rows]

    def wait_for(self, step: int, timeout: float) -> None:
        """Wait until the rows are those of a step."""
        with self._turn:
            if not self._turn.wait_for(lambda: self.is_at(step), timeout):
                late = [f"worker {q}" for q in range(self.workers) if q not in self._complete]
                raise WorkerError(
                    f"{', '.join(late)} did not push the gradients of step {self.step} within {timeout:g} s: look at "
                    "that worker's own last lines; every worker has to push at every step"
                )

    def is_at(self, step: int) -> bool:
        """Return whether the rows are those of a step."""
        return self.config.hogwild or self.step >= step

    def add(self, worker: int, rows: Tensor, gradients: Tensor, step: int, *, last: bool = True) -> bool:
        """Take gradients of rows (int64) from a worker, its ``last`` ones of that step; return whether rows changed.

        Raise a `WorkerError` if they are of another step, which `is_at` would have told.
        """
        with self._turn:
            if self.config.hogwild:
                self.apply(rows, gradients)
                return True
            if step != self.step or worker in self._complete:
                raise WorkerError(f"worker {worker} pushes gradients of step {step}, but this is step {self.step}")
            self._arrived.setdefault(worker, []).append((rows, gradients))
            if last:
                self._complete.add(worker)
            if len(self._complete) < self.workers:
                return False
            every = [piece for q in sorted(self._arrived) for piece in self._arrived[q]]
            self._arrived, self._complete = {}, set()
            self.apply(torch.cat([rows for rows, _ in every]), torch.cat([some for _, some in every]))
            self.step += 1
            self._turn.notify_all()
            return True

    @torch.no_grad()
    def apply(self, rows: Tensor, gradients: Tensor) -> None:
        """Update rows (int64, maybe repeated) by their gradients [m, width]."""
        distinct, inverse, counts = rows.unique(return_inverse=True, return_counts=True)
        if not len(distinct):
            return
        g = self.rows.new_zeros(len(distinct), self.width).index_add_(0, inverse, gradients.to(self.rows.dtype))
        if self.config.reduce == "mean":
            g /= counts[:, None]
        self.rows[distinct] -= self.config.lr * self._direction(distinct, g)

    def _direction(self, rows: Tensor, g: Tensor) -> Tensor:
        state = self.state
        match self.config.optimizer:
            case "sgd":
                return g
            case "adagrad":
                state["square"][rows] += g * g
                return g / (state["square"][rows].sqrt() + 1e-10)
        first, second = _BETAS
        state["updates"][rows] += 1
        k = state["updates"][rows, None]
        mean = state["mean"][rows].mul_(first).add_(g, alpha=1 - first)
        square = state["square"][rows].mul_(second).addcmul_(g, g, value=1 - second)
        state["mean"][rows], state["square"][rows] = mean, square
        return (mean / (1 - first**k)) / ((square / (1 - second**k)).sqrt() + 1e-8)

    def state_dict(self) -> dict[str, Tensor]:
        """Return rows and optimizer state, a tensor with n rows each."""
        return {"rows": self.rows, **self.state}

    def load_state_dict(self, tensors: Mapping[str, Tensor], step: int) -> None:
        """Take rows and state, as of the beginning of a step."""
        if set(tensors) != {"rows", *self.state}:
            raise ValueError("the state of another optimizer")
        for name, own in (("rows", self.rows), *self.state.items()):
            own.copy_(tensors[name])
        self.step = step


def first_rows(original: Tensor, width: int, seed: int) -> Tensor:
    """Return the first rows of nodes by their original ids (int64 [n]): uniform in ±1/√width, float64 [n, width]."""
    rows = torch.empty(len(original), width, dtype=torch.float64)
    for column in range(width):
        keys = kernels.random_keys(kernels.stream(_SALT, seed, column), original)
        rows[:, column] = (keys >> 11 & (1 << 53) - 1).double() * 2.0**-52 - 1
    return rows / math.sqrt(width)
