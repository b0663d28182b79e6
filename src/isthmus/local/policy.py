"""What a recipe decides of a worker's exchange."""

from __future__ import annotations

from dataclasses import dataclass, field

from isthmus.comm import Add, All, AsIs, Codec, Gap, Replace, Stages
from isthmus.errors import InputError
from isthmus.features import CachePolicy
from isthmus.local.savings import Savings
from isthmus.sample import LastLayer, Sampler


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
    cache: CachePolicy | None = None
    """Input features of halo nodes are fetched whenever a step reads them, but for those that the cache holds. None:
    they are fetched once (or, without that saving, like all other rows)."""
    weights: Codec = field(default_factory=AsIs)
    """How the gradients of the weights travel when the workers sum them."""
    precision: str = "fp32"
    """In what rows are aggregated and multiplied by weights while a model trains: fp32; bf16, with sums in fp32; or
    auto, bf16 where the processor multiplies it by itself."""
    thin: LastLayer | None = None
    """Of the rows that the loss reads, where they are few: which inner neighbours the last layer makes them of."""

    def __post_init__(self) -> None:
        for stages in (self.forward, self.backward):
            if self.sampler is not None and not isinstance(stages.merge, Replace | Add):
                raise InputError("a drawn graph reads only rows drawn for it: nothing old can be kept or smoothed")
            if self.sampler is not None and stages.ring:
                raise InputError("whole blocks round a ring leave nothing to draw: set rate to 1")
            if self.sampler is not None and not isinstance(stages.select, All):
                raise InputError("a drawn graph needs the rows that were drawn for it: none of them can be skipped")
        if self.forward.clip is not None:
            raise InputError("only gradients are clipped: leave clip out of the features' stages")
        if self.cache is not None and self.forward.ring:
            raise InputError("whole blocks round a ring leave nothing to cache: set cache to none")

    @property
    def weighs_all_rows(self) -> bool:
        """Whether a row is sent or not goes by all others, too, so that none of them can be left out."""
        return any(isinstance(stages.select, Gap) for stages in (self.forward, self.backward))

    @property
    def stateless(self) -> bool:
        """Nothing but the weights is carried from one step to the next."""
        sized = self.sampler is not None and self.sampler.refresh > 0
        return self.forward.stateless and self.backward.stateless and not sized and self.cache is None
