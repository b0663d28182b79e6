"""The guard: rows are exact while they change fast from step to step, and as lossy as the recipe when that is safe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.comm import FORWARD
from isthmus.errors import InputError

LOSSY, EXACT = 0, 1
NAMES = {LOSSY: "lossy", EXACT: "exact"}


@dataclass(frozen=True)
class Guard:
    """The rule by which a run changes between its recipe and exact rows.

    The error is that of forward rows, ‖held − fresh‖ / ‖fresh‖, at the site where it is largest (`local.watch`). It is
    known in both states: while rows are exact, it is the error that the recipe would make.
    """

    error: float = 0.05
    """The recipe takes over when the error has stayed below this for ``patience`` steps."""
    slack: float = 2.0
    """Rows are exact again from the step after the error has risen above ``slack`` times that."""
    patience: int = 10
    longest: int = 80
    """Patience doubles whenever rows had to become exact again, up to so many steps: pipelines are seldom refilled."""

    def __post_init__(self) -> None:
        if not self.error > 0:
            raise InputError(f"guard_error must be above 0, not {self.error:g}")


class Controller:
    """The state of a guard in a run. It hears sums over all workers alone, so all workers decide alike."""

    def __init__(self, guard: Guard):
        self.guard, self.level, self.patience, self.calm = guard, EXACT, guard.patience, 0
        self.error = 0.0  # of the last step

    def observe(self, errors: Mapping[str, float]) -> int:
        """Take the errors of a step, by site and pass; return the level from the next step on."""
        forward = [error for name, error in errors.items() if name.endswith(FORWARD)]
        self.error = max(forward, default=0.0)
        limit = self.guard.error
        self.calm = self.calm + 1 if self.error <= limit else 0
        if self.level == LOSSY and not self.error <= limit * self.guard.slack:
            self.level, self.patience = EXACT, min(2 * self.patience, self.guard.longest)
        elif self.level == EXACT and self.calm >= self.patience:
            self.level = LOSSY
        return self.level

    def state(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint."""
        return {"counts": torch.tensor([self.level, self.patience, self.calm])}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Put a state back; a run that was begun without a guard goes on as lossy as it was."""
        if not state:
            self.level = LOSSY
            return
        self.level, self.patience, self.calm = state["counts"].tolist()
