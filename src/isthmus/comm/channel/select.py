"""Which of a link's rows leave at a step, where the sender decides it alone.

(Rows that are drawn at random are not decided here: both ends draw the same graph, see `isthmus.sample`.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.errors import InputError

Picks = list[Tensor | None]  # per peer: int32 numbers of the rows of its block; None is all of them


class Select:
    """The contract, and its plainest case: everything, always."""

    compares: ClassVar[bool] = False
    """The choice is made against what the readers hold: the sender keeps a copy of that, and since the readers can't
    know the choice, a few bytes go ahead of the rows."""

    def by_clock(self, worker: int, step: int) -> bool:
        """Whether `worker` sends at `step`, as everyone can tell."""
        return True

    def by_value(self, rows: list[Tensor], held: list[Tensor]) -> Picks:
        """The choice by comparing the rows of each peer with what it holds of them."""
        return [None] * len(rows)


@dataclass(frozen=True)
class All(Select):
    """Every row, at every step."""


@dataclass(frozen=True)
class Every(Select):
    """SANCUS-E: a worker sends every bound + 1 steps. Staggered (SANCUS-A): the workers take turns."""

    bound: int = 1
    staggered: bool = False

    def __post_init__(self) -> None:
        if self.bound < 0:
            raise InputError(f"bound counts steps: it must be at least 0, not {self.bound}")

    def by_clock(self, worker: int, step: int) -> bool:
        # At step 0 all send, since nobody holds anything yet.
        phase = worker % (self.bound + 1) if self.staggered else 0
        return step == 0 or (step - phase) % (self.bound + 1) == 0


@dataclass(frozen=True)
class Gap(Select):
    r"""SANCUS-H: a worker sends when its rows have moved, :math:`\|H - \tilde H\|_F > ε \|\tilde H\|_F`.

    :math:`\tilde H` is what the readers hold; a row counts once for each reader.
    """

    bound: float = 0.02
    compares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.bound < 0:
            raise InputError(f"bound must be at least 0, not {self.bound}")

    def by_value(self, rows: list[Tensor], held: list[Tensor]) -> Picks:
        moved = sum(float(torch.linalg.vector_norm(new - old)) ** 2 for new, old in zip(rows, held, strict=True))
        size = sum(float(torch.linalg.vector_norm(old)) ** 2 for old in held)
        still = moved <= self.bound**2 * size and size > 0
        return [torch.empty(0, dtype=torch.int32)] * len(rows) if still else [None] * len(rows)


@dataclass(frozen=True)
class Changed(Select):
    r"""CDFGNN: a row is sent when it has moved, :math:`\|z - \tilde z\|_\infty > ε \|\tilde z\|_\infty`."""

    bound: float = 0.01
    compares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.bound < 0:
            raise InputError(f"bound must be at least 0, not {self.bound}")

    def by_value(self, rows: list[Tensor], held: list[Tensor]) -> Picks:
        return [self._moved(new, old) if len(new) else None for new, old in zip(rows, held, strict=True)]

    def _moved(self, new: Tensor, old: Tensor) -> Tensor:
        moved = (new - old).abs().amax(1) > self.bound * old.abs().amax(1)
        return moved.nonzero().flatten().to(torch.int32)
