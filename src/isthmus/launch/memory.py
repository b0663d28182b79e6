"""How workers get their memory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_MIB = 2**20
GAPS = 1.3  # times more memory at the peak, for the speed that kept blocks give


def use_huge_pages(environ: MutableMapping[str, str] = os.environ) -> None:
    """Lets torch ask the kernel for huge pages, unless the user has decided otherwise. Call it before torch allocates.

    In pages of 4 KiB the faults alone took a third of an epoch of a 3-layer SAGE.
    """
    environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


@contextmanager
def kept_blocks(environ: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """Freed blocks of up to 256 MiB stay with this process, unless the user has decided otherwise.

    A step makes and frees the same large tensors as the one before. Left alone, malloc maps each afresh, and the kernel
    clears it: a sixth of the processor time of isthmus on products@0.05. The price is up to a third more memory at the
    peak, since blocks of unlike sizes leave gaps; larger ones, which would cost too much, are given back as ever.
    """
    decided = "LD_PRELOAD" in environ or any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in environ)
    libc = ctypes.CDLL(None)
    if decided or not hasattr(libc, "mallopt") or not hasattr(libc, "malloc_trim"):
        yield
        return
    _keep(libc, blocks=256 * _MIB, free=2**31 - 1)
    try:
        yield
    finally:  # about what glibc itself comes to after a while
        _keep(libc, blocks=32 * _MIB, free=64 * _MIB)
        libc.malloc_trim(ctypes.c_size_t(0))


def _keep(libc: ctypes.CDLL, blocks: int, free: int) -> None:
    """Blocks of up to so many bytes come from the heap, and so many free bytes at its end are not given back."""
    libc.mallopt(_MMAP_THRESHOLD, blocks)
    libc.mallopt(_TRIM_THRESHOLD, free)
