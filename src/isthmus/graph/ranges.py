"""Checks of index arrays that a kernel will follow without looking: in blocks, so that no copy of them is made."""

from __future__ import annotations

import numpy as np

BLOCK = 1 << 20  # numbers looked at in one go: they stay in the cache between two looks


def ascends(starts: np.ndarray, end: int) -> bool:
    """Return whether the row starts of a CSR form go from 0 to ``end`` and never back."""
    if starts.ndim != 1 or not len(starts) or starts[0] != 0 or starts[-1] != end:
        return False
    blocks = (starts[a : a + BLOCK + 1] for a in range(0, len(starts), BLOCK))
    return all(bool((block[1:] >= block[:-1]).all()) for block in blocks)


def outlier(values: np.ndarray, limit: int, least: int = 0) -> int | None:
    """Return the place of the first value that is not in ``least`` … ``limit`` − 1; None if there is none."""
    flat = values.reshape(-1)
    for a in range(0, len(flat), BLOCK):
        block = flat[a : a + BLOCK]
        if block.min() < least or block.max() >= limit:
            return a + int(np.flatnonzero((block < least) | (block >= limit))[0])
    return None
