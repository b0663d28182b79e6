"""The controller: says at each step how lossy rows may be, by their error, and how lossy they must be, by the link."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.comm import FORWARD
from isthmus.errors import InputError

WAITED, COMPUTED = "seconds waited", "seconds computed"
"""The figures of a step by which the link is judged: of all workers together."""

_NEGLIGIBLE = 0.1  # of the computing time: waiting that is not worth a loss
_ROOM = 0.9  # of the computing time that transfers may fill
_STEPS = 5  # in a row that have to wait: a single one may have met a hiccup


@dataclass(frozen=True)
class Guard:
    """The rule by which a run changes between its recipe and exact rows.

    The error is that of forward rows, ‖held − fresh‖ / ‖fresh‖, at the site where it is largest (`local.watch`). It is
    known in both states: while rows are exact, it is the error that the recipe would make.
    """

    error: float = 0.05
    """The error that lossy rows may have."""
    margin: float = 0.5
    """The recipe takes over when the error has stayed below this share of it for ``patience`` steps. Where weights move
    fast, late rows make them move faster still: rows are exact again from the step after the error has doubled since
    then (been divided by it), and is above this share."""
    patience: int = 10
    longest: int = 80
    """Patience doubles whenever rows had to become exact again, up to so many steps: pipelines are seldom refilled."""

    def __post_init__(self) -> None:
        if not self.error > 0:
            raise InputError(f"guard_error must be above 0, not {self.error:g}")


_ALWAYS_SAFE = Guard(math.inf, patience=0)


class Controller:
    """The state of a run's control. It hears sums over all workers alone, so all workers decide alike.

    Its levels are the recipe's rungs, each more lossy than the one before, and last of all exact rows, with which a run
    begins. ``shares``: what each rung sends of what the first does. Without a ``guard`` all of them are safe.
    ``by_link``: no step is more lossy than the link makes it worth; else there is one rung, and it is always worth it.
    """

    def __init__(self, guard: Guard | None, shares: Sequence[float] = (1.0,), by_link: bool = False):
        self.guard, self.shares, self.by_link = guard or _ALWAYS_SAFE, shares, by_link
        self.exact, self.goal = len(shares), 0  # goal: the rung that is taken when that is safe
        self.level, self.patience, self.calm = self.exact, self.guard.patience, 0
        self.error = 0.0  # each measurement counts half of what the next one does, so that a single one decides nothing
        self.allowed = self.guard.error  # while the recipe is in force
        self.late, self.waited, self.computed = 0, 0.0, 0.0  # steps in a row that had to wait, and their seconds
        self.waiting = 0.0  # in these steps, relative to computing

    def observe(self, errors: Mapping[str, float], told: Mapping[str, float]) -> int:
        """Take the errors of a step by site and pass, where it measured any, and its figures; return the next level."""
        forward = [error for name, error in errors.items() if name.endswith(FORWARD)]
        self.error = (self.error + max(forward)) / 2 if forward else self.error
        before, low = self.level, self.guard.margin * self.guard.error
        self.calm = self.calm + 1 if self.error <= low else 0
        worth = self._hear_link(told) if self.by_link else True
        if self.level != self.exact and not self.error <= self.allowed:
            self.level, self.patience = self.exact, min(2 * self.patience, self.guard.longest)
        elif worth and (self.level != self.exact or self.calm >= self.patience):
            self.level = self.goal
        if before == self.exact != self.level:
            self.allowed = max(self.error / self.guard.margin, low)
        if self.level != before:
            self.late, self.waited, self.computed = 0, 0.0, 0.0
        return self.level

    def _hear_link(self, told: Mapping[str, float]) -> bool:
        """Return whether steps wait so long that a more lossy level is worth it; `goal` is then the one that suffices.

        A step that waits for late rows lasts as long as their transfer, so the next rungs' transfers are known.
        """
        waited, computed = told[WAITED], told[COMPUTED]
        if waited <= _NEGLIGIBLE * computed:
            self.late, self.waited, self.computed, self.waiting = 0, 0.0, 0.0, 0.0
            return False
        self.late, self.waited, self.computed = self.late + 1, self.waited + waited, self.computed + computed
        self.waiting = self.waited / self.computed
        if self.late >= _STEPS and self.level == self.goal < self.exact - 1:
            transfer = (self.waited + self.computed) / self.shares[self.goal]
            fits = [share * transfer <= _ROOM * self.computed for share in self.shares]
            fits[: self.goal + 1] = [False] * (self.goal + 1)
            self.goal = fits.index(True) if any(fits) else self.exact - 1
        return self.late >= _STEPS

    def state(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint."""
        counts = [self.level, self.patience, self.calm, self.goal, self.late]
        values = torch.tensor([self.error, self.allowed, self.waited, self.computed], dtype=torch.float64)
        return {"counts": torch.tensor(counts), "values": values}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Put a state back; a run that was begun without a guard goes on as lossy as it was."""
        if not state:
            self.level = self.goal
            return
        self.level, self.patience, self.calm, self.goal, self.late, *_ = [*state["counts"].tolist(), 0, 0]
        if "values" in state:
            self.error, self.allowed, self.waited, self.computed = state["values"].tolist()
