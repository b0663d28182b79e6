"""Memory: how much a worker's tensors take, how much a machine has, and how people write it."""

from __future__ import annotations

import re
import weakref
from pathlib import Path

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.weak import WeakIdKeyDictionary

from isthmus.errors import InputError

UNITS = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}


class LiveBytes(TorchDispatchMode):
    """A counter of the bytes of all tensors that operations of this thread make, while anything holds them.

    Memory that was there before (memory-mapped files) and views of it are not counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.paused = False
        self._known = WeakIdKeyDictionary()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if not self.paused:
            given = {_memory(tensor)._cdata for tensor in _tensors((args, kwargs))}
            for tensor in _tensors(made):
                if _memory(tensor)._cdata not in given:
                    self._count(_memory(tensor))
        return made

    def _count(self, memory) -> None:
        if memory not in self._known:
            size = memory.nbytes()
            self._known[memory] = size
            weakref.finalize(memory, self._forget, size).atexit = False
            self.now += size
            self.peak = max(self.peak, self.now)

    def _forget(self, size: int) -> None:
        self.now -= size


def _tensors(content):
    return (leaf for leaf in tree_iter(content) if isinstance(leaf, Tensor))


def _memory(tensor: Tensor):
    return tensor.untyped_storage()


def bytes_of(text: str) -> int:
    """Return a written size as a number of bytes: "16GiB" → 2³⁴."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([kmgt]?i?b)", text.strip().lower())
    if match is None or match[2] not in UNITS or not float(match[1]):
        raise InputError(f"cannot read the memory size {text!r}: write it like 16GiB or 512MiB")
    return int(float(match[1]) * UNITS[match[2]])


def written(size: float) -> str:
    """Return a number of bytes as people write it: 2³⁴ → "16.0 GiB"."""
    unit = next((unit for unit in ("TiB", "GiB", "MiB") if size >= UNITS[unit.lower()]), "KiB")
    return f"{size / UNITS[unit.lower()]:.3g} {unit}"


def available() -> int | None:
    """Return the bytes that this machine can still give: as the kernel says, within a container's limit."""
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return None
    free = next(int(line.split()[1]) * 1024 for line in meminfo.read_text().splitlines() if "MemAvailable" in line)
    return min([free, *_left_in_container()])


def _left_in_container(root: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """Return the bytes that cgroups, version 2 or 1, still allow this process."""
    left = []
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        if (root / limit).exists() and (most := (root / limit).read_text().strip()) != "max":
            left.append(max(0, int(most) - int((root / used).read_text())))
    return left
