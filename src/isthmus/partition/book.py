"""The book of a parts folder: which part owns which nodes, checksums, and access to the memory-mapped parts.

Every array is read through `Book.array`, which compares its sha256 with the book's once, and every part through
`Book.part`, which checks the range of its indices once: so no command uses damaged data.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from isthmus.errors import InputError
from isthmus.files import check_seal, map_array, read_as, read_json, sha256, unreadable
from isthmus.graph.check import most_classes
from isthmus.graph.graph import SparseRows
from isthmus.partition.check import NAMES, OF_CUT, check_part
from isthmus.partition.part import Part, PartInfo
from isthmus.partition.quality import Quality

FORMAT = "isthmus-parts"
VERSION = 2
CUTS = MappingProxyType(
    {
        "edge": "every edge with the owner of its target",
        "cover": "like edge; a cut edge is summed at whichever end keeps the rows that are sent fewest",
        "vertex": "edges anywhere; a node has a master and mirrors",
    }
)
"""The ways to assign edges to parts."""
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
class Book:
    """The description of a parts folder; part k owns the global ids ``ranges[k]:ranges[k+1]``."""

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
    quality: Quality
    parts: tuple[PartInfo, ...]
    isthmus: str = field(default_factory=_isthmus_version)
    regression: bool = False
    """Whether y are values to predict; ``classes`` is then the number of targets."""

    def __post_init__(self) -> None:
        consistent = len(self.ranges) == len(self.parts) + 1 and self.ranges[0] == 0 and self.ranges[-1] == self.nodes
        if not consistent or [b - a for a, b in pairwise(self.ranges)] != [part.inner for part in self.parts]:
            raise InputError(f"{self.folder}: book.json contradicts itself about which part owns which nodes: {_AGAIN}")

    def _contradiction(self) -> str:
        """Return in which point the book contradicts itself; "" if it is consistent."""
        names = ("inner", "halo", "inner_edges", "halo_edges", "mirror_edges", "boundary")
        counts = [getattr(part, name) for part in self.parts for name in names]
        local = max(p.inner + p.halo for p in self.parts)  # ids inside a part have 32 bits, all others 64
        if not self.nodes > 0 or min(counts) < 0 or sum(p.edges for p in self.parts) != self.edges:
            return "how many nodes and edges there are"
        if local >= 2**31:
            return "how many nodes a part can have"
        if not (1 <= self.classes <= most_classes(self.nodes) and 0 <= self.features < 2**31):
            return "how many features and classes there are"
        splits = (self.train, self.val, self.test)
        if any(len(s) != self.splits or min(s, default=-1) < 0 or max(s) > self.nodes for s in splits):
            return "its splits"
        files = set(self.parts[0].files)
        known = NAMES | {f"{name}.npy" for name in OF_CUT.get(self.cut, ())}
        if any(set(p.files) != files for p in self.parts) or not files <= known:
            return "which files a part has"
        lists = [value for value in self.quality.values() if isinstance(value, list)]
        lists += [self.quality["splits"].get(name, []) for name in ("train", "val", "test")]
        if any(len(one) != len(self.parts) for one in lists) or not all(map(all, self.quality["splits"].values())):
            return "the quality of its parts"
        return ""

    @staticmethod
    def read(folder: str | os.PathLike[str]) -> Book:
        """Open a parts folder: check version, ranges and the size of every file, but read no contents.

        A machine needs only the parts of its own workers (`is_here`).
        """
        path = Path(folder)
        content = _read_json(path)
        if content.get("format") != FORMAT:
            raise InputError(f"{path} is not a parts folder: {MAKE}")
        if not isinstance(content.get("version"), int) or content["version"] > VERSION:
            raise InputError(
                f"{path} has format version {content.get('version')}, this isthmus reads up to {VERSION}: "
                f"upgrade isthmus, or {_AGAIN}"
            )
        check_seal(content, path / "book.json", _AGAIN)
        book = read_as(Book, {**content, "folder": str(path)}, str(path / "book.json"), _AGAIN)
        if book.cut not in CUTS:
            known = ", ".join(CUTS)
            raise InputError(f"{path} has the cut {book.cut!r}, this isthmus reads {known}: {_AGAIN}")
        if about := book._contradiction():
            raise InputError(f"{path}: book.json contradicts itself about {about}: {_AGAIN}")
        book._check_files()
        return book

    @property
    def num_parts(self) -> int:
        return len(self.parts)

    @property
    def has_ids(self) -> bool:
        """Whether the source has its own names for its nodes."""
        return "ids.npy" in self.parts[0].files

    @property
    def has_edge_attr(self) -> bool:
        """Whether the edges have weights or other attributes."""
        return "inner_edge_attr.npy" in self.parts[0].files

    def __repr__(self) -> str:
        quality = f"{self.quality['cut_share']:.1%} of {self.edges:,} edges cut"
        return f"Book({self.folder}: {self.name} in {self.num_parts} part(s) by {self.method}, {quality})"

    def as_dict(self) -> dict[str, Any]:
        """Return the content of book.json without format and version."""
        result = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "folder"}
        result["parts"] = [{f.name: getattr(part, f.name) for f in fields(part)} for part in self.parts]
        return result

    def part(self, index: int) -> Part:
        """Return part ``index`` with its arrays memory-mapped; it is checked in full when first asked for."""
        if not 0 <= index < self.num_parts:
            raise InputError(f"{self.folder} has no part {index}: ask for one of 0 to {self.num_parts - 1}")
        if not self.is_here(index):
            raise InputError(f"{self.folder} is a copy without part-{index}, which is needed here: {_MEND}")
        arrays: dict[str, Any] = {Path(name).stem: self.array(index, name) for name in self.parts[index].files}
        if index not in self._checked:
            check_part(self, index, arrays, _AGAIN)
            self._checked.add(index)
        if "halo_rows" not in arrays:
            arrays["halo_rows"] = self._halo_rows(index)
        if "x_indptr" in arrays:
            indptr, indices, data = (arrays.pop(f"x_{name}") for name in ("indptr", "indices", "data"))
            arrays["x"] = SparseRows(indptr, indices, data, self.features)
        return Part(index=index, **arrays)

    def _halo_rows(self, index: int) -> np.ndarray:
        """Return the owners' local ids of a part's halo nodes, for version 1: the rows that owners send to it."""
        pieces = [np.empty(0, np.int32)]
        for owner in range(self.num_parts):
            first, last = self.array(owner, "send_ptr.npy")[index : index + 2]
            pieces.append(self.array(owner, "send_rows.npy")[first:last])
        return np.concatenate(pieces)

    def ids(self, index: int) -> np.ndarray:
        """Return the source's names of a part's inner nodes, memory-mapped; only if it `has_ids`."""
        return self.array(index, "ids.npy")

    @property
    def fingerprint(self) -> str:
        """A digest of every file's sha256: equal for equal parts."""
        sums = [entry["sha256"] for info in self.parts for _, entry in sorted(info.files.items())]
        return hashlib.sha256(" ".join(sums).encode()).hexdigest()[:16]

    def verify_checksums(self, parts: Iterable[int] | None = None) -> None:
        """Compare the sha256 of every file (of the given parts) with the book's; refuse a file that differs."""
        for index in range(self.num_parts) if parts is None else parts:
            for name in self.parts[index].files:
                self._verify(index, name)

    def array(self, index: int, name: str) -> np.ndarray:
        """Return one array of a part, memory-mapped, after its sha256 was compared with the book's."""
        if name not in self.parts[index].files:
            raise InputError(f"{self._path(index, name)} is missing in book.json: {_AGAIN}")
        self._verify(index, name)
        # Arrays given to models are mapped copy-on-write, so that in-place edits never reach the disk.
        return map_array(self._path(index, name), _AGAIN, "c" if name in HANDED_OUT else "r")

    @cached_property
    def _verified(self) -> set[tuple[int, str]]:
        """The files whose content was compared with their sha256."""
        return set()

    @cached_property
    def _checked(self) -> set[int]:
        """The parts whose indices were checked."""
        return set()

    def _verify(self, index: int, name: str) -> None:
        if (index, name) in self._verified:
            return
        path = self._path(index, name)
        if sha256(path, _MEND) != self.parts[index].files[name]["sha256"]:
            raise InputError(f"{path} is corrupt (its sha256 is not the book's): {_MEND}")
        self._verified.add((index, name))

    def _path(self, index: int, name: str) -> Path:
        return self.folder / f"part-{index}" / name

    def is_here(self, index: int) -> bool:
        """Return whether a part is on this machine: folders of other workers' parts may be left out of a copy."""
        return (self.folder / f"part-{index}").is_dir()

    def _check_files(self) -> None:
        if not any(map(self.is_here, range(self.num_parts))):
            raise InputError(f"{self.folder} has no part at all, part-0 to part-{self.num_parts - 1}: {_MEND}")
        for index, info in enumerate(self.parts):
            for name, entry in info.files.items() if self.is_here(index) else ():
                path = self._path(index, name)
                if not path.is_file():
                    raise InputError(f"{path} is missing, or not an ordinary file: {_MEND}")
                size = path.stat().st_size
                if size != entry["bytes"]:
                    raise InputError(f"{path} has {size:,} bytes instead of {entry['bytes']:,}: {_MEND}")


def is_parts_folder(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder's book.json says that it holds parts."""
    try:
        return _read_json(Path(folder)).get("format") == FORMAT
    except InputError:
        return False


def _read_json(folder: Path) -> dict[str, Any]:
    path = folder / "book.json"
    try:
        if not path.is_file():
            what = (
                "is not a parts folder (no book.json)"
                if folder.exists()
                else "does not exist, a parts folder is needed"
            )
            raise InputError(f"{folder} {what}: {MAKE}")
    except OSError as error:  # such as a name that is too long
        raise unreadable(folder, error, MAKE) from error
    content = read_json(path, _AGAIN)
    if not isinstance(content, dict):
        raise InputError(f"{path} does not hold a book: {_AGAIN}")
    return content
