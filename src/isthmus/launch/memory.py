"""How this process gets its memory."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> bool:
    """Asks glibc to keep what is freed; whether it does.

    A step makes and frees the same few large tensors each time. By default each of them is mapped afresh, and the
    kernel zeroes its pages one fault at a time: measured at 40 % of an epoch of a 3-layer SAGE. Kept memory is reused
    in the next step; the peak stays the same.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    done = [mallopt(_M_MMAP_MAX, 0), mallopt(_M_TRIM_THRESHOLD, -1), mallopt(_M_TOP_PAD, 64 << 20)]
    return all(done)
