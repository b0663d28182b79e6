"""Advice to the system about the pages of memory: those that are read at random, and those that are free."""

from __future__ import annotations

import ctypes
import mmap

from torch import Tensor

from isthmus.device import is_host


def read_at_random(x: Tensor) -> None:
    """Tell the system that rows of a memory-mapped tensor are read at random.

    By default it reads 128 KiB for each missing row, and drops as much for that where memory is short.
    """
    libc = ctypes.CDLL(None)
    if not x.nbytes or not is_host(x.device) or not hasattr(libc, "madvise") or not hasattr(mmap, "MADV_RANDOM"):
        return
    first = x.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
    length = x.data_ptr() + x.nbytes - first
    libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(length), ctypes.c_int(mmap.MADV_RANDOM))  # advice only


def give_back() -> None:
    """Give free pages of this process back to the system, such as those that the set-up of a run has left."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(ctypes.c_size_t(0))
