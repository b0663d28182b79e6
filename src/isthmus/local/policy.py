"""What a recipe decides of a worker's exchange."""

from __future__ import annotations

from dataclasses import dataclass, field

from isthmus.comm import Replace, Stages
from isthmus.errors import InputError
from isthmus.local.savings import Savings
from isthmus.sample import Sampler


@dataclass(frozen=True)
class Policy:
    """The graph drawn per step, the way of features forward and of gradients backward, and the exact savings taken.

    The default is exact training.
    """

    savings: Savings = field(default_factory=Savings)
    forward: Stages = field(default_factory=Stages)
    backward: Stages = field(default_factory=Stages)
    sampler: Sampler | None = None
    seed: int | None = None
    """Of all draws; None is the seed of the run."""

    def __post_init__(self) -> None:
        for stages in (self.forward, self.backward):
            if self.sampler is not None and not isinstance(stages.merge, Replace):
                raise InputError(
                    "a drawn graph reads only rows that were drawn for it: nothing old can be kept or smoothed"
                )
            if self.sampler is not None and stages.ring:
                raise InputError("whole blocks round a ring leave nothing to draw: set rate to 1")

    @property
    def stateless(self) -> bool:
        """Nothing but the weights is carried from one step to the next."""
        sized = self.sampler is not None and self.sampler.refresh > 0
        return self.forward.stateless and self.backward.stateless and not sized
