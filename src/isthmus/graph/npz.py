"""Read ``.npz`` files: ``edge_index``, ``x`` (dense or CSR), ``y``, three masks. Pickled arrays are refused."""

from __future__ import annotations

import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from isthmus.errors import InputError
from isthmus.files import array_errors, check_unpacked, open_regular, read_array
from isthmus.graph.graph import SparseRows
from isthmus.graph.raw import RawGraph, attributes, no_features

MASKS = ("train_mask", "val_mask", "test_mask")
SPARSE_X = ("x_indptr", "x_indices", "x_data", "x_shape")


def read_npz(path: Path) -> RawGraph:
    """Read the documented keys; ignore others, such as further masks."""
    with NpzArrays(path) as arrays:
        sparse = "x" not in arrays.names and "x_indptr" in arrays.names
        arrays.require("edge_index", "y", *MASKS, *(SPARSE_X if sparse else ()))
        edge_index = arrays["edge_index"]
        if edge_index.ndim != 2 or edge_index.shape[0] != 2:
            raise InputError(f"{path}: edge_index has shape {list(edge_index.shape)}, expected [2, E]: save it again")
        edge_attr, notes = attributes(arrays.get("edge_attr"), arrays.get("edge_weight"))
        return RawGraph(
            src=edge_index[0],
            dst=edge_index[1],
            x=_sparse_x(path, arrays) if sparse else arrays["x"] if "x" in arrays.names else no_features(arrays["y"]),
            y=arrays["y"],
            train_mask=arrays["train_mask"],
            val_mask=arrays["val_mask"],
            test_mask=arrays["test_mask"],
            name=path.stem,
            num_nodes=arrays.number("num_nodes"),
            num_classes=arrays.number("num_classes"),
            edge_attr=edge_attr,
            node_type=arrays.get("node_type"),
            notes=notes,
        )


def _sparse_x(path: Path, arrays: NpzArrays) -> SparseRows:
    indptr, indices, data, shape = (arrays[key] for key in SPARSE_X)
    whole = shape.shape == (2,) and shape.dtype.kind in "iu"
    if not whole or indptr.ndim != 1 or len(indptr) != int(shape[0]) + 1:
        rows = indptr.size - 1
        raise InputError(f"{path}: x_shape {shape.tolist()} does not fit {rows:,} rows of x_indptr: save x again")
    return SparseRows(indptr, indices, data, int(shape[1]))


class NpzArrays:
    """The arrays of an .npz file, each read when asked for; any fault of the file is an InputError."""

    def __init__(self, path: Path) -> None:
        self.path, self._file = path, open_regular(path)
        try:
            if self._file.read(4) not in (b"PK\x03\x04", b"PK\x05\x06"):  # a zip with members, or an empty one
                raise InputError(f"{path} is not an .npz file (a zip of arrays): write it with numpy.savez")
            with self._reading(""):
                self._zip = zipfile.ZipFile(self._file)
            self._members = {info.filename.removesuffix(".npy"): info for info in self._zip.infolist()}
            unpacked = sum(info.file_size for info in self._members.values())
            check_unpacked(path, os.fstat(self._file.fileno()).st_size, unpacked)
        except BaseException:
            self._file.close()
            raise
        self.names = list(self._members)

    def __enter__(self) -> NpzArrays:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()
        self._file.close()

    def require(self, *names: str) -> None:
        missing = [name for name in names if name not in self.names]
        if missing:
            there = ", ".join(sorted(self.names)) or "nothing"
            raise InputError(f"{self.path} has no {', '.join(missing)} (there is: {there}): add what is missing")

    def __getitem__(self, name: str) -> np.ndarray:
        with self._reading(f" at {name}"), self._zip.open(self._members[name]) as member:
            return read_array(member, self._members[name].file_size)

    @contextmanager
    def _reading(self, where: str) -> Iterator[None]:
        """Report a fault of the zip, or of an array in it, as one line."""
        try:
            with array_errors(f"{self.path}{where}", "copy or write it again"):
                yield
        except InputError as error:
            if "pickled" in str(error):
                name = where.removeprefix(" at ")
                raise InputError(
                    f"{self.path}: {name} is a pickled array, which could run code: save it as a plain array"
                ) from None
            raise InputError(f"{self.path} is truncated or damaged{where}: copy or write it again") from None
        except (
            zipfile.BadZipFile,
            zlib.error,
            lzma.LZMAError,
            EOFError,
            RuntimeError,
            struct.error,
        ):
            # An unknown compression method or a password makes the file as unreadable as damage does.
            raise InputError(f"{self.path} is truncated or damaged{where}: copy or write it again") from None

    def get(self, name: str) -> np.ndarray | None:
        return self[name] if name in self.names else None

    def number(self, name: str) -> int | None:
        value = self.get(name)
        if value is not None and (value.size != 1 or value.dtype.kind not in "iu"):
            raise InputError(f"{self.path}: {name} is not one integer: save it as e.g. np.int64(7)")
        return None if value is None else int(value.reshape(-1)[0])
