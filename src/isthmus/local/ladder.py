"""The ladder: the levels of loss that a run can take, of which the controller chooses one for every step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from isthmus.comm import Ledger
from isthmus.local.controller import COMPUTED, WAITED, Controller
from isthmus.local.level import Level
from isthmus.local.policy import Policy
from isthmus.local.watch import Watch

EXACT = "exact"


class Ladder:
    """The recipe's rungs, least lossy first, and exact rows at the end; a run without a controller has one rung."""

    def __init__(self, asked: Policy, make: Callable[[Policy], Level], controlled: bool):
        """Begin with exact rows, if ``controlled``. ``make``: makes the level of a policy, on all workers at once."""
        self.make, self.controller = make, None
        rungs = asked.ladder
        self.policies = {rung.name: rung.policy for rung in rungs}
        if controlled:
            self.policies[EXACT] = asked.exact
            self.controller = Controller(asked.guard, [rung.share for rung in rungs], by_link=bool(asked.rungs))
        self.names, self.made = list(self.policies), dict[int, Level]()
        self.last = self.level = self.at(len(self.names) - 1)
        self.begun = 0.0, 0.0  # the time when the step began, and the seconds that the ledger said by then

    def at(self, number: int) -> Level:
        """Return a level; it is made when it is first asked for."""
        if number not in self.made:
            self.made[number] = self.make(self.policies[self.names[number]])
        return self.made[number]

    @property
    def recipe(self) -> Level:
        """The level of lossy steps: the recipe's, or that rung of it which the controller takes next."""
        return self.at(0 if self.controller is None else self.controller.goal)

    def choose(self, watch: Watch, ledger: Ledger) -> None:
        """Begin a step at the level that the controller chose after the last one."""
        level = self.level if self.controller is None else self.at(self.controller.level)
        begins = level is not self.level and level is self.recipe
        if level is not self.level:
            self.level.leave()
            self.level = level
        if begins or watch.policy is not self.recipe.policy:
            watch.restart(self.recipe.policy)
        self.begun = time.perf_counter(), ledger.wait_seconds

    def figures(self, ledger: Ledger) -> dict[str, float]:
        """Return what the controller must know of this step's link, from all workers together."""
        if self.controller is None or not self.controller.by_link:
            return {}
        begun, before = self.begun
        waited = ledger.wait_seconds - before
        return {WAITED: waited, COMPUTED: time.perf_counter() - begun - waited}

    def observe(self, errors: Mapping[str, float], told: Mapping[str, float]) -> None:
        """Let the controller decide, by errors and figures of all workers."""
        if self.controller is not None:
            self.controller.observe(errors, told)

    @property
    def number(self) -> int:
        """The number of the level that is in force."""
        return next(number for number, level in self.made.items() if level is self.level)

    def line(self) -> dict[str, Any]:
        """Return what the record of a step says of the controller: what it decided, and by what."""
        control = self.controller
        if control is None:
            return {}
        line = {"level": self.names[self.number], "next": self.names[control.level], "error": control.error}
        return {"guard": line | ({"waiting": control.waiting} if control.by_link else {})}

    def state(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint."""
        if self.controller is None:
            return {}
        return self.controller.state() | {"level": torch.tensor([self.number])}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Put a state back."""
        if self.controller is not None:
            self.level = self.at(int(state.pop("level", 0)))
            self.controller.restore(state)
