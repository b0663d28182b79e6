"""The native core: a shared library with plain C functions, if one was built for this machine."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import numpy as np
import torch

_LEVELS = ("avx512", "avx2", "default")


def path() -> Path | None:
    """Return the file of the best core that this processor can run, or None."""
    capability = torch.backends.cpu.get_cpu_capability().lower()
    usable = _LEVELS[_LEVELS.index(capability) :] if capability in _LEVELS else ("default",)
    for level in usable:
        for suffix in reversed(EXTENSION_SUFFIXES):  # plain .so first: the core does not depend on Python's version
            file = Path(__file__).parent / f"_core_{level}{suffix}"
            if file.exists():
                return file
    return None


@cache
def core() -> ctypes.CDLL | None:
    """Return the loaded core; None where it was not built or ISTHMUS_NATIVE=0 asks for the torch twins.

    torch is imported first on purpose: both then share one OpenMP runtime, hence one pool of threads."""
    file = path()
    if file is None or os.environ.get("ISTHMUS_NATIVE") == "0":
        return None
    return ctypes.CDLL(str(file))


def call(function: Any, *arguments: int | np.ndarray | None) -> int:
    """Call a function of the native core with whole numbers and contiguous arrays."""
    function.restype = ctypes.c_int64
    values = [
        ctypes.c_void_p(value.ctypes.data) if isinstance(value, np.ndarray) else
        ctypes.c_void_p(None) if value is None else ctypes.c_int64(value)
        for value in arguments
    ]  # fmt: skip
    return function(*values)
