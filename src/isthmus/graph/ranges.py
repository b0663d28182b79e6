"""Check index arrays that a kernel will use unchecked; works in blocks, so that no copy of them is made."""

from __future__ import annotations

import numpy as np

BLOCK = 1 << 20  # numbers checked at a time: they stay in the cache between two reads


def ascends(starts: np.ndarray, end: int) -> bool:
    """Return whether the row starts of a CSR form ascend from 0 to ``end``."""
    if starts.ndim != 1 or not len(starts) or starts[0] != 0 or starts[-1] != end:
        return False
    blocks = (starts[a : a + BLOCK + 1] for a in range(0, len(starts), BLOCK))
    return all(bool((block[1:] >= block[:-1]).all()) for block in blocks)


def outlier(values: np.ndarray, limit: int, least: int = 0) -> int | None:
    """Return the position of the first value that is not in ``least`` … ``limit`` − 1; None if there is none."""
    flat = values.reshape(-1)
    for a in range(0, len(flat), BLOCK):
        block = flat[a : a + BLOCK]
        if block.min() < least or block.max() >= limit:
            return a + int(np.flatnonzero((block < least) | (block >= limit))[0])
    return None
