"""Selectors: rules by which a sender alone decides which of a link's rows leave at a step.

(Rows drawn at random are not decided here: both ends draw the same graph, see `isthmus.sample`.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.errors import InputError

Picks = list[Tensor | None]  # per peer: int32 numbers of rows in its block; None: all of them
SURE = 255  # the level of a row that leaves in any case


class Select:
    """A rule of selection, with the state that it keeps from step to step.

    A recipe gives the rule; every channel has its own selector (`start`). A rule without state is its own selector.
    """

    compares: ClassVar[bool] = False
    """Whether the choice compares rows with what the readers hold. The sender then keeps a copy of that, and announces
    the choice in a few bytes, since readers cannot know it."""
    jointly: ClassVar[bool] = False
    """Whether the choice depends on all rows together, so that none of them may be missing where it is made."""
    skips: ClassVar[bool] = True
    """Whether some rows may stay with the sender."""
    singletons: bool = False
    """Whether a master without mirrors is held back by the rule, too, though nobody would have to send its row."""
    chance: float = 0.0
    """Rows are drawn by their `levels`: this is the largest chance that one has to leave. 0: they are chosen by value
    alone (`by_value`), and masters hold back their own rows by the same rule."""
    observes: ClassVar[bool] = False
    """Whether the choice depends on the progress of training, which the step has to report (`observe`)."""

    def __init_subclass__(cls) -> None:
        if cls.by_value is not Select.by_value and not cls.compares:
            raise TypeError(f"{cls.__name__} chooses by value: set compares = True, or its choice is never asked for")

    def start(self) -> Select:
        """Return the selector of one channel."""
        return self

    def by_clock(self, worker: int, step: int) -> bool:
        """Return whether ``worker`` sends at ``step``, by a rule that every worker can evaluate."""
        return True

    def by_value(self, rows: list[Tensor], held: list[Tensor]) -> Picks:
        """Choose rows by comparing each peer's rows with what it holds of them."""
        return [None] * len(rows)

    def levels(self, rows: list[Tensor], held: list[Tensor]) -> list[Tensor]:
        """Return the chance of every row to leave, in parts of `SURE`, uint8; only asked where rows are drawn."""
        return [torch.full((len(new),), SURE, dtype=torch.uint8, device=new.device) for new in rows]

    def everything(self, step: int) -> bool:
        """Return whether all rows leave at this step, whatever a choice by value would say."""
        return False

    def observe(self, told: Mapping[str, float]) -> None:
        """Learn how training goes, by figures of a step that are equal on all workers. ``train``: share of hits."""

    def state(self) -> dict[str, Tensor]:
        """Return the state that outlives a step, by name, for a checkpoint."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Put a state back."""


@dataclass(frozen=True)
class All(Select):
    """The rule that sends every row at every step."""

    skips = False


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
    compares = True
    jointly = True

    def __post_init__(self) -> None:
        _check_bound(self.bound)

    def by_value(self, rows: list[Tensor], held: list[Tensor]) -> Picks:
        moved = sum(float(torch.linalg.vector_norm(new - old)) ** 2 for new, old in zip(rows, held, strict=True))
        size = sum(float(torch.linalg.vector_norm(old)) ** 2 for old in held)
        still = moved <= self.bound**2 * size and size > 0
        return [rows[0].new_empty(0, dtype=torch.int32)] * len(rows) if still else [None] * len(rows)


@dataclass(frozen=True)
class Changed(Select):
    r"""CDFGNN: a row is sent when it has moved, :math:`\|z - \tilde z\|_\infty > ε \|\tilde z\|_\infty`.

    ``adapt``: the bound follows the training accuracy (`Threshold`); it begins with ``bound``. ``resync``: all rows are
    sent every so many steps; 0: never.

    ``chance``: rows that lag behind do so in the same direction, so their errors add up in the sums that make the
    gradients of the weights, and cost far more accuracy than ε. So rows are drawn: one that moved by ε or more leaves
    with this chance, one that moved by a share of ε with that share of it, and a change that arrives counts, at that
    step, one over its chance. What readers use is then right on average, as in SAGA, and what they hold is as sent.
    """

    bound: float = 0.01
    adapt: bool = False
    resync: int = 0
    singletons: bool = False
    as_printed: bool = False
    chance: float = 0.0
    compares = True

    def __post_init__(self) -> None:
        _check_bound(self.bound)
        if not 0 <= self.chance <= 1:
            raise InputError(f"chance must be above 0 and at most 1, not {self.chance}")

    @property
    def observes(self) -> bool:  # type: ignore[override]
        return self.adapt

    def start(self) -> Select:
        return Threshold(self) if self.adapt else self

    def everything(self, step: int) -> bool:
        return bool(self.resync) and step % self.resync == 0

    def by_value(self, rows: list[Tensor], held: list[Tensor]) -> Picks:
        return _changed(rows, held, self.bound)

    def levels(self, rows: list[Tensor], held: list[Tensor]) -> list[Tensor]:
        return _levels(rows, held, self.bound, self.chance)


class Threshold(Select):
    r"""CDFGNN's adaptive bound ε (eq. 6, by its prose): larger while accuracy grows, smaller when it falls.

    .. math:: ε \leftarrow \min(1.05 ε, ε + 0.01) \text{ if } acc > mean + 0.02, \qquad
              ε \leftarrow \max(0.9 ε, ε - 0.01) \text{ if } acc < mean - 0.001

    within [0.001, 0.3]; then mean ← 0.8 mean + 0.2 acc, beginning with the first accuracy. As printed, the two
    conditions on acc are exchanged.
    """

    compares = True
    observes = True
    RISE, FALL = 0.02, 0.001  # μ2, μ1
    MOST, LEAST = 0.3, 0.001  # ν1, ν2
    UP, DOWN, STEP = 1.05, 0.9, 0.01  # λ1, λ2, ξ
    MEMORY = 0.8

    def __init__(self, rule: Changed):
        self.rule, self.bound = rule, rule.bound
        self.mean: float | None = None

    def by_value(self, rows: list[Tensor], held: list[Tensor]) -> Picks:
        return _changed(rows, held, self.bound)

    def levels(self, rows: list[Tensor], held: list[Tensor]) -> list[Tensor]:
        return _levels(rows, held, self.bound, self.rule.chance)

    def everything(self, step: int) -> bool:
        return self.rule.everything(step)

    def observe(self, told: Mapping[str, float]) -> None:
        accuracy = told["train"]
        mean = accuracy if self.mean is None else self.mean
        rises, falls = accuracy > mean + self.RISE, accuracy < mean - self.FALL
        if self.rule.as_printed:
            rises, falls = falls, rises
        if rises and self.bound < self.MOST:
            self.bound = min(self.UP * self.bound, self.bound + self.STEP, self.MOST)
        elif falls and self.bound > self.LEAST:
            self.bound = max(self.DOWN * self.bound, self.bound - self.STEP, self.LEAST)
        self.mean = self.MEMORY * mean + (1 - self.MEMORY) * accuracy

    def state(self) -> dict[str, Tensor]:
        mean = float("nan") if self.mean is None else self.mean
        return {"threshold": torch.tensor([self.bound, mean], dtype=torch.float64)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self.bound, mean = state["threshold"].tolist()
        self.mean = None if mean != mean else mean


@dataclass(frozen=True)
class Active(Select):
    """CDFGNN's scatter: a row is sent whenever it is not, bit for bit, what it was at the step before.

    Sums of rows that senders hold back (`Changed`) stay the same until one of them is sent. ``resync``: as there.
    """

    resync: int = 0
    compares = True

    def start(self) -> Select:
        return _Active(self.resync)


class _Active(Select):
    compares = True

    def __init__(self, resync: int) -> None:
        self.resync = resync
        self.last: list[Tensor] = []

    def everything(self, step: int) -> bool:
        return bool(self.resync) and step % self.resync == 0

    def by_value(self, rows: list[Tensor], held: list[Tensor]) -> Picks:
        last = self.last or [torch.zeros_like(new) for new in rows]
        self.last = [new.clone() for new in rows]
        moved = [(new != old).any(1) for new, old in zip(rows, last, strict=True)]
        return [flags.nonzero().flatten().to(torch.int32) for flags in moved]

    def state(self) -> dict[str, Tensor]:
        return {f"last.{q}": rows for q, rows in enumerate(self.last)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self.last = [state[f"last.{q}"].clone() for q in range(len(state))]


def _changed(rows: list[Tensor], held: list[Tensor], bound: float) -> Picks:
    """Return the rows of each peer that moved by more than the bound, relative to their largest held value."""

    def moved(new: Tensor, old: Tensor) -> Tensor:
        still = (new - old).abs().amax(1) <= bound * old.abs().amax(1)  # not so for NaN, which must not stay at home
        return (~still).nonzero().flatten().to(torch.int32)

    return [moved(new, old) if len(new) else None for new, old in zip(rows, held, strict=True)]


def _levels(rows: list[Tensor], held: list[Tensor], bound: float, chance: float) -> list[Tensor]:
    """Return how likely rows leave: the more they moved, up to the bound; those that did not move stay."""

    def level(new: Tensor, old: Tensor) -> Tensor:
        if not len(new):
            return new.new_empty(0, dtype=torch.uint8)
        moved, size = (new - old).abs().amax(1), old.abs().amax(1)
        share = torch.where(moved == 0, moved, moved / (bound * size)).clamp(max=1)
        return (SURE * chance * share).ceil().nan_to_num(SURE).to(torch.uint8)  # NaN must not stay at home

    return [level(new, old) for new, old in zip(rows, held, strict=True)]


def _check_bound(bound: float) -> None:
    if bound < 0:
        raise InputError(f"bound must be at least 0, not {bound}")
