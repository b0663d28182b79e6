"""The book of a parts folder: who owns what, whether it is intact; and the parts themselves, memory-mapped."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy as np

from isthmus.errors import InputError
from isthmus.graph.graph import SparseRows

FORMAT = "isthmus-parts"
VERSION = 1
HEADERS = threading.Lock()  # numpy reads them with ast, which fails in two threads of Python 3.11, as workers may be
HANDED_OUT = {f"{name}.npy" for name in ("x", "y", "train_mask", "val_mask", "test_mask", "degree", "nodes")}
MAKE = "`isthmus partition SOURCE --parts N --out DIR` makes one"
_AGAIN = "write the parts again with `isthmus partition`"
_MEND = f"copy the folder again, or {_AGAIN}"


def _isthmus_version() -> str:
    try:
        return metadata.version("isthmus")
    except metadata.PackageNotFoundError:
        return "source"


@dataclass(frozen=True)
class PartInfo:
    """What the book says of one part."""

    inner: int
    halo: int
    inner_edges: int
    halo_edges: int
    boundary: int  # inner nodes that another part reads
    files: Mapping[str, Mapping[str, Any]]  # name → {"bytes", "sha256"}

    @property
    def bytes(self) -> int:
        return sum(entry["bytes"] for entry in self.files.values())


@dataclass(frozen=True)
class Part:
    """One part, memory-mapped: n inner nodes, h halo nodes, P parts, S splits. Local ids count inner nodes from 0.

    Where a worker trains several, their join (`partition.join`) is one of these too, with P workers instead of parts.
    """

    index: int
    nodes: np.ndarray  # int64 [n], original ids
    halo_nodes: np.ndarray  # int64 [h], original ids, grouped by owner
    halo_ptr: np.ndarray  # int64 [P+1]: halo rows owned by q
    send_rows: np.ndarray  # int32 [s]: local ids that q reads, in the order of q's halo group
    send_ptr: np.ndarray  # int64 [P+1]
    degree: np.ndarray  # int32 [n], in-degree in the whole graph
    halo_degree: np.ndarray  # int32 [h]
    inner_indptr: np.ndarray  # int64 [n+1], edges inner → inner
    inner_indices: np.ndarray  # int32
    halo_indptr: np.ndarray  # int64 [n+1], edges halo → inner
    halo_indices: np.ndarray  # int32, positions in the halo list
    x: np.ndarray | SparseRows  # [n, F]
    y: np.ndarray  # int64 [n] or uint8 [n, C]
    train_mask: np.ndarray  # bool [n, S]
    val_mask: np.ndarray
    test_mask: np.ndarray
    inner_edge_attr: np.ndarray | None = None
    halo_edge_attr: np.ndarray | None = None
    node_type: np.ndarray | None = None
    ids: np.ndarray | None = None  # [n] integers or words: what the source calls the inner nodes


@dataclass(frozen=True)
class Book:
    """A parts folder. Part k owns the global ids ``ranges[k]:ranges[k+1]``."""

    folder: Path
    name: str
    nodes: int
    edges: int
    features: int
    classes: int
    multilabel: bool
    splits: int
    cut: str
    method: str
    options: Mapping[str, Any]
    symmetric: bool
    ranges: tuple[int, ...]
    train: tuple[int, ...]
    val: tuple[int, ...]
    test: tuple[int, ...]
    quality: Mapping[str, Any]
    parts: tuple[PartInfo, ...]
    isthmus: str = field(default_factory=_isthmus_version)

    def __post_init__(self) -> None:
        sizes = np.diff(self.ranges)
        consistent = len(self.ranges) == len(self.parts) + 1 and self.ranges[0] == 0 and self.ranges[-1] == self.nodes
        if not consistent or (sizes != [part.inner for part in self.parts]).any():
            raise InputError(f"{self.folder}: book.json contradicts itself about which part owns which nodes: {_AGAIN}")

    @staticmethod
    def read(folder: str | os.PathLike[str]) -> Book:
        """Open a parts folder: version, ranges and the size of every file are checked, contents are not read."""
        path = Path(folder)
        content = _read_json(path)
        if content.get("format") != FORMAT:
            raise InputError(f"{path} is not a parts folder: {MAKE}")
        if not isinstance(content.get("version"), int) or content["version"] > VERSION:
            raise InputError(
                f"{path} has format version {content.get('version')}, this isthmus reads up to {VERSION}: "
                f"upgrade isthmus, or {_AGAIN}"
            )
        try:
            values = {f.name: content[f.name] for f in fields(Book) if f.name != "folder"}
            parts = tuple(PartInfo(**part) for part in values.pop("parts"))
            for name in ("ranges", "train", "val", "test"):
                values[name] = tuple(int(value) for value in values[name])
            book = Book(folder=path, parts=parts, **values)
            book._check_files()
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path / 'book.json'} is damaged ({error!r}): {_AGAIN}") from error
        return book

    @property
    def num_parts(self) -> int:
        return len(self.parts)

    @property
    def has_ids(self) -> bool:
        """Whether the source has names of its own for its nodes."""
        return "ids.npy" in self.parts[0].files

    def __repr__(self) -> str:
        quality = f"{self.quality['cut_share']:.1%} of {self.edges:,} edges cut"
        return f"Book({self.folder}: {self.name} in {self.num_parts} part(s) by {self.method}, {quality})"

    def as_dict(self) -> dict[str, Any]:
        """The content of book.json but for format and version."""
        result = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "folder"}
        result["parts"] = [{f.name: getattr(part, f.name) for f in fields(part)} for part in self.parts]
        return result

    def part(self, index: int) -> Part:
        """Part ``index`` with its arrays memory-mapped; their shapes are checked against the book."""
        if not 0 <= index < self.num_parts:
            raise InputError(f"{self.folder} has no part {index}: ask for one of 0 to {self.num_parts - 1}")
        info = self.parts[index]
        arrays: dict[str, Any] = {Path(name).stem: self._array(index, name) for name in info.files}
        if "x_indptr" in arrays:
            indptr, indices, data = (arrays.pop(f"x_{name}") for name in ("indptr", "indices", "data"))
            arrays["x"] = SparseRows(indptr, indices, data, self.features)
        expected = {
            **dict.fromkeys(("nodes", "degree", "y", "x", "train_mask", "val_mask", "test_mask"), info.inner),
            **dict.fromkeys(("inner_indptr", "halo_indptr"), info.inner + 1),
            **dict.fromkeys(("halo_nodes", "halo_degree"), info.halo),
            **dict.fromkeys(("halo_ptr", "send_ptr"), self.num_parts + 1),
            **{"inner_indices": info.inner_edges, "halo_indices": info.halo_edges},
        }
        if self.has_ids:
            expected["ids"] = info.inner
        if len(arrays.get("send_ptr", ())):
            expected["send_rows"] = int(arrays["send_ptr"][-1])
        for name, rows in expected.items():
            if name not in arrays or arrays[name].shape[0] != rows:
                path = self._path(index, f"{name}.npy")
                raise InputError(f"{path} does not have the {rows:,} rows that the book says: {_AGAIN}")
        return Part(index=index, **arrays)

    def ids(self, index: int) -> np.ndarray:
        """What the source calls the inner nodes of a part, memory-mapped; only where it `has_ids`."""
        return self._array(index, "ids.npy")

    @property
    def fingerprint(self) -> str:
        """The same for the same parts: a digest of every file's sha256."""
        sums = [entry["sha256"] for info in self.parts for _, entry in sorted(info.files.items())]
        return hashlib.sha256(" ".join(sums).encode()).hexdigest()[:16]

    def verify_checksums(self, parts: Iterable[int] | None = None) -> None:
        """Read every file (of some parts) and compare its sha256 with the book's; one that differs is an error."""
        for index in range(self.num_parts) if parts is None else parts:
            info = self.parts[index]
            for name, entry in info.files.items():
                path = self._path(index, name)
                with path.open("rb") as file:
                    found = hashlib.file_digest(file, "sha256").hexdigest()
                if found != entry["sha256"]:
                    raise InputError(f"{path} is corrupt (its sha256 is not the book's): {_MEND}")

    def _path(self, index: int, name: str) -> Path:
        return self.folder / f"part-{index}" / name

    def _check_files(self) -> None:
        for index, info in enumerate(self.parts):
            for name, entry in info.files.items():
                path = self._path(index, name)
                if not path.is_file():
                    raise InputError(f"{path} is missing: {_MEND}")
                size = path.stat().st_size
                if size != entry["bytes"]:
                    raise InputError(f"{path} has {size:,} bytes instead of {entry['bytes']:,}: {_MEND}")

    def _array(self, index: int, name: str) -> np.ndarray:
        path = self._path(index, name)
        try:
            with HEADERS, path.open("rb") as file:
                np.lib.format.read_magic(file)
                empty = 0 in np.lib.format.read_array_header_1_0(file)[0]
            # An empty file maps to nothing. Who writes in place to what models are given writes to a copy of his own.
            mode: Literal["r", "c"] | None = None if empty else "c" if name in HANDED_OUT else "r"
            with HEADERS:
                return np.load(path, mmap_mode=mode, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise InputError(f"{path} is not a readable array ({error}): {_AGAIN}") from error


def is_parts_folder(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder says of itself that it holds parts."""
    try:
        return _read_json(Path(folder)).get("format") == FORMAT
    except InputError:
        return False


def _read_json(folder: Path) -> dict[str, Any]:
    path = folder / "book.json"
    if not path.is_file():
        what = "is not a parts folder (no book.json)" if folder.exists() else "does not exist, a parts folder is needed"
        raise InputError(f"{folder} {what}: {MAKE}")
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not readable json ({error}): {_AGAIN}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} does not hold a book: {_AGAIN}")
    return content
