"""Read arrays in numpy's ``.npy`` format without pickle: the size that a header claims must be that of the data.

The header is not read by numpy, which evaluates it as Python, raises undocumented exceptions on some damage, and cannot
do so in two threads of Python 3.11.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from isthmus.errors import InputError
from isthmus.files.regular import open_regular, unreadable

MAGIC = b"\x93NUMPY"
LONGEST = 10_000  # bytes of a header
_HEADER = re.compile(
    r"\{\s*'descr':\s*'(?P<descr>[^']*)',\s*'fortran_order':\s*(?P<fortran>True|False),"
    r"\s*'shape':\s*\((?P<shape>[\d\s,L]*)\),?\s*\}\s*"
)


class Stream(Protocol):
    """A readable file, or a readable member of a zip."""

    def read(self, size: int = -1, /) -> bytes: ...


@dataclass(frozen=True)
class Header:
    """The header of an array's file."""

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran: bool
    start: int  # bytes before the data

    @property
    def bytes(self) -> int:
        """The size of the data."""
        return math.prod(self.shape) * self.dtype.itemsize


class DamagedArray(Exception):
    """An array that cannot be read; the text says why, in a few words."""


def read_header(file: Stream) -> Header:
    """Read the header of an array and leave the file at the beginning of its data."""
    start = file.read(8)
    if start[:6] != MAGIC or len(start) < 8 or start[6] not in (1, 2):
        raise DamagedArray("it does not begin like an .npy file")
    wide = 2 if start[6] == 1 else 4
    length = int.from_bytes(file.read(wide), "little")
    if length > LONGEST:
        raise DamagedArray("its header is too long")
    found = _HEADER.fullmatch(file.read(length).decode("latin1"))
    if found is None:
        raise DamagedArray("its header is damaged, or it holds no plain array")
    shape = tuple(int(word.strip().rstrip("L") or "-1") for word in found["shape"].split(",") if word.strip())
    try:
        dtype = np.dtype(found["descr"])
    except (TypeError, ValueError):
        raise DamagedArray(f"its dtype {found['descr'][:40]!r} is unknown") from None
    if dtype.hasobject:
        raise DamagedArray("it is a pickled array, which could run code: save it as a plain array")
    if dtype.names is not None or dtype.subdtype is not None or len(shape) > 32 or any(n >= 2**62 for n in shape):
        raise DamagedArray("it holds no plain array")
    return Header(dtype, shape, found["fortran"] == "True", 8 + wide + length)


def read_array(file: Stream, size: int) -> np.ndarray:
    """Read an array from a file, or a member of a zip, of ``size`` bytes."""
    header = read_header(file)
    _check_size(header, size)
    array = np.empty(math.prod(header.shape), header.dtype)
    room = array.view(np.uint8).data if array.nbytes else memoryview(b"")
    done = 0
    while done < len(room):
        piece = file.read(min(len(room) - done, 1 << 24))
        if not piece:
            raise DamagedArray("it is truncated")
        room[done : done + len(piece)] = piece
        done += len(piece)
    return _shaped(array, header)


def map_array(path: Path, remedy: str, mode: Literal["r", "c"] = "r") -> np.ndarray:
    """Memory-map an array; an empty one is read, since empty files cannot be mapped."""
    with open_regular(path, remedy) as file, array_errors(path, remedy):
        size = os.fstat(file.fileno()).st_size
        header = read_header(file)
        _check_size(header, size)
        if not header.bytes:
            return _shaped(np.empty(math.prod(header.shape), header.dtype), header)
        order: Literal["F", "C"] = "F" if header.fortran else "C"
        return np.memmap(file, header.dtype, mode, header.start, header.shape, order)


@contextmanager
def array_errors(path: Path | str, remedy: str) -> Iterator[None]:
    """Report in one line any fault of the array that is read in this block."""
    try:
        yield
    except DamagedArray as error:
        raise InputError(f"{path} is not a readable array ({error}): {remedy}") from None
    except OSError as error:
        raise unreadable(path, error, remedy) from None
    except ValueError as error:  # shapes that numpy itself refuses
        raise InputError(f"{path} is not a readable array ({error}): {remedy}") from None


def _check_size(header: Header, size: int) -> None:
    if header.bytes != size - header.start:
        shape = list(header.shape)
        raise DamagedArray(f"it claims shape {shape} of {header.dtype} but has {size - header.start:,} bytes of data")


def _shaped(array: np.ndarray, header: Header) -> np.ndarray:
    return array.reshape(header.shape, order="F" if header.fortran else "C")
