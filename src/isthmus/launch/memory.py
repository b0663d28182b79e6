"""Configure how worker processes allocate memory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # constants of glibc's mallopt
_MIB = 2**20
GAPS = 1.3  # factor of peak memory that keeping freed blocks may cost


def use_huge_pages(environ: MutableMapping[str, str] = os.environ) -> None:
    """Let torch ask the kernel for huge pages, unless the user has decided; call it before torch allocates.

    With pages of 4 KiB the page faults alone took a third of an epoch of a 3-layer SAGE.
    """
    environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def all_memory(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int | None:
    """Return the bytes of memory that this process may use: those of the machine, or of the limit it is under."""
    if not (meminfo := Path("/proc/meminfo")).exists():
        return None
    most = [next(int(line.split()[1]) * 1024 for line in meminfo.read_text().splitlines() if "MemTotal" in line)]
    groups = [line.split(":", 2)[2].strip("/") for line in own.read_text().splitlines()] if own.exists() else []
    for group in {"", *groups}:
        for file in (root / group / "memory.max", root / "memory" / group / "memory.limit_in_bytes"):
            if file.exists() and (limit := file.read_text().strip()) != "max":
                most.append(int(limit))
    return min(most)


def is_tight(parts: Path) -> bool:
    """Return whether the files of parts, which are read in place, take more than half of the memory."""
    memory = all_memory()
    return memory is not None and sum(file.stat().st_size for file in parts.glob("part-*/*")) > memory / 2


@contextmanager
def kept_blocks(environ: MutableMapping[str, str] = os.environ, tight: bool = False) -> Iterator[None]:
    """Keep freed blocks of up to 256 MiB in this process during the block, unless the user has decided otherwise.

    Each step allocates and frees the same large tensors. By default malloc maps each anew, and the kernel clears it: a
    sixth of the processor time of isthmus on products@0.05. The price is up to a third more memory at the peak, since
    blocks of different sizes leave gaps; larger blocks, which would cost too much, are returned as usual. ``tight``:
    memory is worth more as cache of files, so that only blocks of up to 1 MiB are kept.
    """
    decided = "LD_PRELOAD" in environ or any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in environ)
    libc = ctypes.CDLL(None)
    if decided or not hasattr(libc, "mallopt") or not hasattr(libc, "malloc_trim"):
        yield
        return
    _keep(libc, blocks=_MIB, free=64 * _MIB) if tight else _keep(libc, blocks=256 * _MIB, free=2**31 - 1)
    try:
        yield
    finally:  # about the values that glibc itself adapts to after a while
        _keep(libc, blocks=32 * _MIB, free=64 * _MIB)
        libc.malloc_trim(ctypes.c_size_t(0))


def _keep(libc: ctypes.CDLL, blocks: int, free: int) -> None:
    """Serve blocks of up to ``blocks`` bytes from the heap, and keep ``free`` unused bytes at its end."""
    libc.mallopt(_MMAP_THRESHOLD, blocks)
    libc.mallopt(_TRIM_THRESHOLD, free)
