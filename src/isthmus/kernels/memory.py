"""The memory of a sender, by which the errors of packed rows do not add up over messages."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


def memory_of(x: Tensor) -> tuple[int, int]:
    """Return a number that only tensors in the same memory share while they live, and where in it x begins."""
    return x.untyped_storage()._cdata, int(x.storage_offset())


class Memory(NamedTuple):
    """The rows that a sender remembers of earlier messages, and which of them a message is about."""

    base: Tensor  # [m, F], updated by each message
    positions: Tensor | None = None  # int32 [k], distinct; None is all, in order
    delta: bool = False
    """True: `base` is what the reader holds, and the difference is sent. False: `base` is what earlier messages
    left out, and is added to this one."""
