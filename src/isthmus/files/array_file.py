"""Write arrays front to back and report their size and checksum, for the file that describes the folder."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any, TypedDict

import numpy as np


class FileEntry(TypedDict):
    """The size and checksum of one file, as the book stores them."""

    bytes: int
    sha256: str


class ArrayFile:
    """A ``.npy`` file of known shape, written front to back while its sha256 is computed."""

    def __init__(self, path: Path, dtype: Any, shape: tuple[int, ...]) -> None:
        self._file = path.open("wb")
        self._path, self._dtype, self._shape = path, np.dtype(dtype), shape
        self._sha256 = hashlib.sha256()
        self._bytes = self._rows = 0
        header = io.BytesIO()
        descr = np.lib.format.dtype_to_descr(self._dtype)
        np.lib.format.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
        self._put(header.getbuffer())

    def append(self, rows: np.ndarray) -> None:
        """Write the next rows."""
        rows = np.ascontiguousarray(rows, dtype=self._dtype)
        if rows.shape[1:] != self._shape[1:]:
            raise ValueError(f"{self._path.name} takes rows of shape {self._shape[1:]}, not {rows.shape[1:]}")
        self._rows += len(rows)
        self._put(rows.reshape(-1).view(np.uint8).data)

    def close(self) -> FileEntry:
        """Flush the file to disk and return its size and checksum."""
        if self._rows != self._shape[0]:
            raise ValueError(f"{self._path.name} was promised {self._shape[0]} rows and got {self._rows}")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return {"bytes": self._bytes, "sha256": self._sha256.hexdigest()}

    def _put(self, data: memoryview) -> None:
        self._file.write(data)
        self._sha256.update(data)
        self._bytes += len(data)
