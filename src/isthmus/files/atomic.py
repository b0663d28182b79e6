"""Files and folders that are either complete or not there: arrays written front to back, folders renamed when done."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from isthmus.errors import InputError


class FileEntry(TypedDict):
    """The entry of one file in the book."""

    bytes: int
    sha256: str


class ArrayFile:
    """A ``.npy`` file of known shape written front to back; its sha256 is computed on the way."""

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
        """Flush to disk; the entry for book.json: size and checksum."""
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


@contextmanager
def folder_at_once(out: Path, *, replace: bool, ours: Callable[[Path], bool], what: str) -> Iterator[Path]:
    """A folder to write into; it takes the name ``out`` when the block ends well, and is removed when it does not.

    A run that is killed leaves only a hidden sibling ``.NAME.unfinished-…``, which the next run to ``out`` removes.
    """
    check_target(out, replace=replace, ours=ours, what=what)
    out.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{out.name}.unfinished-"
    _sweep(out.parent, prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=out.parent))
    folder.chmod(0o755)
    lock = _lock(folder)
    try:
        yield folder
        for path in (*(p for p in folder.rglob("*") if p.is_dir()), folder):
            sync_folder(path)
        check_target(out, replace=replace, ours=ours, what=what)  # again: it may have come into being meanwhile
        if out.exists() and any(out.iterdir()):
            old = Path(tempfile.mkdtemp(prefix=prefix, dir=out.parent))
            out.rename(old)
            folder.rename(out)
            shutil.rmtree(old)
        else:
            folder.rename(out)
        sync_folder(out.parent)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def check_writable(folder: Path) -> None:
    """A folder that is there and can be written to, or can be made."""
    above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise InputError(f"cannot write {folder}: {above} is no folder that can be written to; give another --out")


def check_target(out: Path, *, replace: bool, ours: Callable[[Path], bool], what: str) -> None:
    """Refuse a target that must not be written over, or cannot be written."""
    check_writable(out.parent)
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not out.is_dir() or not ours(out):
        raise InputError(f"{out} exists and is not {what}: choose another --out")
    if not replace:
        raise InputError(f"{out} already holds {what}: choose another --out, or add --overwrite")


@contextmanager
def files_at_once(targets: Sequence[Path], *, replace: bool) -> Iterator[list[Path]]:
    """Paths to write to; they take the targets' names when the block ends well, and are removed when it does not.

    All targets are in one folder. What a killed process leaves is hidden, and the next one to the same targets
    removes it.
    """
    check_free(targets, replace=replace)
    parent = targets[0].parent
    parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{targets[0].name}.unfinished-"
    _sweep(parent, prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    lock = _lock(folder)
    try:
        paths = [folder / target.name for target in targets]
        yield paths
        for path in paths:
            with path.open("rb") as file:
                os.fsync(file.fileno())
        check_free(targets, replace=replace)  # again: they may have come into being meanwhile
        for path, target in zip(paths, targets, strict=True):
            path.replace(target)
        sync_folder(parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def check_free(targets: Sequence[Path], *, replace: bool) -> None:
    """Refuse files that must not be written over."""
    for target in targets:
        if target.is_dir():
            raise InputError(f"{target} is a folder: give a file's name as --out")
        if target.exists() and not replace:
            raise InputError(f"{target} exists already: choose another --out, or add --overwrite")


def sync_folder(path: Path) -> None:
    """Make the folder's entries durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _lock(folder: Path) -> int:
    """Hold the folder as long as this process lives, so that nobody sweeps it away."""
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return handle


def _sweep(parent: Path, prefix: str) -> None:
    """Remove what killed runs left: folders of that prefix which no living process holds."""
    for path in parent.iterdir():
        if not path.name.startswith(prefix):
            continue
        try:
            handle = _lock(path)
        except OSError:
            continue
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)
