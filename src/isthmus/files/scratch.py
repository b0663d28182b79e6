"""Large arrays that are written once and read by pieces: in a temporary file instead of in memory."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np

LARGE = 1 << 30  # bytes from which on an array is better kept on disk


def scratch_array(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return an array to be filled: in memory or, if it is large, in a temporary file that vanishes with it.

    The file is in the system's folder for those (``TMPDIR``); if that has no room, the array is in memory.
    """
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if size < LARGE:
        return np.empty(shape, dtype)
    try:
        with tempfile.TemporaryFile() as file:
            os.posix_fallocate(file.fileno(), 0, size)  # or a full disk would end the process when it is written to
            return np.memmap(file, dtype, "r+", shape=shape)
    except (AttributeError, OSError):
        return np.empty(shape, dtype)
