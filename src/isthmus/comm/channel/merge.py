"""Merges: rules by which a reader joins arriving rows with those that it already holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from isthmus.comm.channel.codec import Codec
from isthmus.errors import InputError
from isthmus.kernels.buffers import Buffers


class Merge:
    """A rule of merging. A message is the coded rows of one peer; ``held`` is what the reader has from that peer."""

    keeps: ClassVar[bool] = True
    """Whether readers hold old rows from step to step."""
    fills_gaps: ClassVar[bool] = True
    """Whether rows that did not arrive stay as they were, so that senders may leave some out."""
    suits_drawn: ClassVar[bool] = False
    """Whether a drawn graph may read the result, because each of its rows comes from a message for that graph."""
    needs_delay: ClassVar[bool] = False
    """Whether it makes sense only for rows of earlier steps."""
    follows: bool = True
    """Whether senders of differences remember what the reader has decoded, so that no error of coding is left behind;
    if not, they remember what they meant to send, and errors add up."""
    is_difference: ClassVar[bool] = False
    """Whether messages carry the difference from what the reader holds, so that senders must keep a copy of that."""

    def apply(
        self, message: Tensor, held: Tensor, positions: Tensor | None, encode: Codec, first: bool, buffers: Buffers
    ) -> None:
        """Join a message [m, ·] with ``held[positions]`` (int32 [m]; None: all of it), in place.

        Only merges that keep rows are asked; by default the message is written there. ``first``: nothing has arrived
        before, ``held`` is zeros.
        """
        encode.decode(message, held, positions)


@dataclass(frozen=True)
class Replace(Merge):
    """A merge that holds what arrived last, and nothing else."""

    keeps = False
    fills_gaps = False
    suits_drawn = True


@dataclass(frozen=True)
class Keep(Merge):
    """A merge that leaves rows that did not arrive as they were."""


@dataclass(frozen=True)
class Add(Merge):
    """A merge that adds the arriving difference to what is held."""

    follows: bool = True
    is_difference = True
    suits_drawn = True

    def apply(
        self, message: Tensor, held: Tensor, positions: Tensor | None, encode: Codec, first: bool, buffers: Buffers
    ) -> None:
        encode.decode(message, held, positions, add=True)


@dataclass(frozen=True)
class Smooth(Merge):
    """PipeGCN's moving average: held ← decay · held + (1 − decay) · arrived."""

    decay: float = 0.95
    from_zero: bool = False
    """Whether the average starts at zero, as published (95 % too small after one arrival), not with that arrival."""

    fills_gaps = False
    needs_delay = True

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise InputError(f"smoothing must be at least 0 and below 1, not {self.decay}")

    def apply(
        self, message: Tensor, held: Tensor, positions: Tensor | None, encode: Codec, first: bool, buffers: Buffers
    ) -> None:
        assert positions is None, "averages are of all rows: `Stages` lets none be left out"
        if first and not self.from_zero:
            encode.decode(message, held)
            return
        arrived = message
        if not encode.as_is or message.dtype != held.dtype:
            arrived = buffers.take(tuple(held.shape), held.dtype)
            encode.decode(message, arrived)
        held.lerp_(arrived, 1 - self.decay)
        if arrived is not message:
            buffers.give(arrived)
