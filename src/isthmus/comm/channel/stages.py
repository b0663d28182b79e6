"""What a channel is made of, and which combinations make sense."""

from __future__ import annotations

from dataclasses import dataclass, field

from isthmus.comm.channel.codec import AsIs, Codec
from isthmus.comm.channel.select import All, Select
from isthmus.errors import InputError


@dataclass(frozen=True)
class Replace:
    """The reader holds what arrived last, and nothing else."""


@dataclass(frozen=True)
class Keep:
    """Rows that did not arrive stay as they were."""


@dataclass(frozen=True)
class Add:
    """What arrives is a difference: it is added to what is held."""


@dataclass(frozen=True)
class Smooth:
    """PipeGCN's moving average: held ← decay · held + (1 − decay) · arrived."""

    decay: float = 0.95
    from_zero: bool = False
    """As published the average begins at zero, and is 95 % too small after one arrival; here it begins with that."""

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise InputError(f"smoothing must be at least 0 and below 1, not {self.decay}")


Merge = Replace | Keep | Add | Smooth


@dataclass(frozen=True)
class Clip:
    """SANCUS: all that a worker sends is scaled down to the norm threshold · workers^power.

    The power is −1/2, since sums of n independent gradients grow by √n; as printed it is +1/2, and never clips.
    """

    threshold: float
    power: float = -0.5

    def __post_init__(self) -> None:
        if self.threshold <= 0:
            raise InputError(f"clip must be above 0, not {self.threshold}")


@dataclass(frozen=True)
class Stages:
    """The way of a block of rows: select → (clip) → encode → ship → wait → decode → merge."""

    select: Select = field(default_factory=All)
    encode: Codec = field(default_factory=AsIs)
    feedback: bool = False
    """Error feedback: what coding left out of one message is added to the next."""
    delay: int = 0
    """Steps between sending and use; a delayed transfer runs beside the computing of the steps between."""
    warm: bool = True
    """The first step waits for fresh rows. False: nothing is there until the first delayed rows are due."""
    merge: Merge = field(default_factory=Replace)
    clip: Clip | None = None
    ring: bool = False
    """Whole blocks pass from worker to worker round a ring (CAGNET), instead of the rows that each one reads."""

    def __post_init__(self) -> None:
        whole = isinstance(self.select, All)
        if self.delay < 0:
            raise InputError(f"staleness counts steps: it must be at least 0, not {self.delay}")
        if not self.warm and not self.delay:
            raise InputError("rows that are not delayed are there at the first step: leave start at warm")
        if not whole and isinstance(self.merge, Replace | Smooth):
            raise InputError("rows that were not sent would be lost: a channel that skips rows must keep the old ones")
        if isinstance(self.merge, Smooth) and not self.delay:
            raise InputError("fresh rows need no smoothing: set staleness to 1 or more, or leave smoothing out")
        if isinstance(self.merge, Add) and self.encode.lossless:
            raise InputError("a difference in full is as long as the row itself: set bits to 16, 8, 4 or 2")
        if self.feedback and self.encode.lossless:
            raise InputError(
                "there is no error to feed back where rows are sent as they are: set bits to 16, 8, 4 or 2"
            )
        if self.feedback and isinstance(self.merge, Add):
            raise InputError("differences against what the reader holds leave no error behind: leave feedback out")
        if self.feedback and not whole:
            raise InputError(
                "feedback would grow old with rows that are not sent: leave feedback out, or send differences"
            )
        if self.ring and (self.delay or not whole or self.feedback or self.clip or not isinstance(self.merge, Replace)):
            raise InputError("whole blocks round a ring are sent at once and in full: only bits can be set with them")

    @property
    def plain(self) -> bool:
        """What arrives can be used where it lies."""
        return self.encode.lossless and isinstance(self.merge, Replace)

    @property
    def mixes_steps(self) -> bool:
        """A reader may hold rows that were sent at another step than the one it is at."""
        return self.delay > 0 or not isinstance(self.merge, Replace)

    @property
    def stateless(self) -> bool:
        """Nothing is carried from one step to the next."""
        return not self.delay and not self.feedback and isinstance(self.merge, Replace)
