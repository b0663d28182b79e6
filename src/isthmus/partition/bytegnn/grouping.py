"""Nodes grouped into blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Blocks:
    """Nodes grouped into B blocks, in ascending order of the blocks' names: centres, or the first nodes of pieces."""

    member: np.ndarray  # int32 [N]: the nodes, block by block
    start: np.ndarray  # int64 [B+1]: where each block begins in `member`
    adds: np.ndarray  # int64 [B, 3]: training, validation and test nodes, summed over splits

    @property
    def count(self) -> int:
        return len(self.start) - 1

    @property
    def sizes(self) -> np.ndarray:
        """The nodes of each block, int64 [B]."""
        return np.diff(self.start)

    @cached_property
    def number(self) -> np.ndarray:
        """The block of every node, int32 [N]."""
        found = np.empty(len(self.member), np.int32)
        found[self.member] = np.repeat(np.arange(self.count, dtype=np.int32), self.sizes)
        return found
