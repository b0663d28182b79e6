"""Stages: the parts of a channel, and the rules for combining them."""

from __future__ import annotations

from dataclasses import dataclass, field

from isthmus.comm.channel.codec import AsIs, Codec
from isthmus.comm.channel.merge import Merge, Replace
from isthmus.comm.channel.select import All, Select
from isthmus.errors import InputError


@dataclass(frozen=True)
class Clip:
    """SANCUS's clipping: everything that a worker sends is scaled down to the norm threshold · workers^power.

    The power is −1/2, since sums of n independent gradients grow by √n; as printed it is +1/2, and never clips.
    """

    threshold: float
    power: float = -0.5

    def __post_init__(self) -> None:
        if self.threshold <= 0:
            raise InputError(f"clip must be above 0, not {self.threshold}")

    def limit(self, workers: int) -> float:
        """Return the largest norm that each of so many workers may send."""
        return self.threshold * workers**self.power


@dataclass(frozen=True)
class Stages:
    """The path of a block of rows: select → (clip) → encode → ship → wait → decode → merge."""

    select: Select = field(default_factory=All)
    encode: Codec = field(default_factory=AsIs)
    feedback: bool = False
    """Error feedback: add to a message what coding left out of the last one."""
    delay: int = 0
    """The number of steps between sending and use; a delayed transfer runs beside the computation of those steps."""
    warm: bool = True
    """Whether the first step waits for fresh rows. False: there are none until the first delayed rows are due."""
    merge: Merge = field(default_factory=Replace)
    clip: Clip | None = None
    ring: bool = False
    """Whether whole blocks pass from worker to worker round a ring (CAGNET), not just the rows that each one reads."""

    def __post_init__(self) -> None:
        if self.delay < 0:
            raise InputError(f"staleness counts steps: it must be at least 0, not {self.delay}")
        if not self.warm and not self.delay:
            raise InputError("rows that are not delayed are there at the first step: leave start at warm")
        if self.select.chance and self.delay:
            raise InputError("a change that was drawn counts at its own step, not later: set staleness to 0")
        if self.select.skips and not self.merge.fills_gaps:
            raise InputError("rows that were not sent would be lost: a channel that skips rows must keep the old ones")
        if self.merge.needs_delay and not self.delay:
            raise InputError("fresh rows need no smoothing: set staleness to 1 or more, or leave smoothing out")
        if (self.merge.is_difference or self.feedback) and not (self.encode.as_is or self.encode.heeds_memory):
            name = type(self.encode).__name__
            raise InputError(f"{name} heeds no memory: send rows with it, not differences, and leave feedback out")
        if self.merge.is_difference and self.encode.as_is:
            raise InputError("a difference in full is as long as the row itself: set bits to 16, 8, 4 or 2")
        if self.feedback and self.encode.as_is:
            raise InputError(
                "there is no error to feed back where rows are sent as they are: set bits to 16, 8, 4 or 2"
            )
        if self.feedback and self.merge.is_difference:
            raise InputError("differences against what the reader holds leave no error behind: leave feedback out")
        if self.feedback and self.select.skips:
            raise InputError(
                "feedback would grow old with rows that are not sent: leave feedback out, or send differences"
            )
        fresh = not (self.delay or self.select.skips or self.feedback or self.clip or self.ring or self.merge.keeps)
        if self.encode.varies and not fresh:
            raise InputError(
                f"{type(self.encode).__name__} chooses how each row is written, for rows that are sent at every step, "
                "now and in full: leave out staleness, feedback and clip"
            )
        if self.ring and (self.delay or self.select.skips or self.feedback or self.clip or self.merge.keeps):
            raise InputError("whole blocks round a ring are sent at once and in full: only bits can be set with them")

    @property
    def plain(self) -> bool:
        """Whether rows can be used where they arrive."""
        return self.encode.as_is and not self.merge.keeps

    @property
    def remembers(self) -> bool:
        """Whether an end holds rows of all links, whichever of them a message carries."""
        return self.feedback or self.merge.keeps or self.select.compares

    @property
    def mixes_steps(self) -> bool:
        """Whether a reader may hold rows that were sent at another step than the current one."""
        return self.delay > 0 or self.merge.keeps or self.encode.predicts

    @property
    def stateless(self) -> bool:
        """Whether nothing is carried from one step to the next."""
        return not (self.delay or self.feedback or self.merge.keeps or self.encode.varies)
