"""Check a part once, when it is loaded: every array has its type and shape, every index is in range.

Kernels use indices unchecked, and checksums do not help against a folder that was made with bad content.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from isthmus.errors import InputError
from isthmus.graph.ranges import ascends, outlier
from isthmus.partition.border import READ, SUMMED
from isthmus.partition.part import PartInfo

MASKS = ("train_mask", "val_mask", "test_mask")
SPARSE_X = ("x_indptr", "x_indices", "x_data")
ATTRIBUTES = ("inner_edge_attr", "halo_edge_attr")
NEEDED = (
    "nodes", "halo_nodes", "halo_ptr", "send_rows", "send_ptr", "degree", "halo_degree", "inner_indptr",
    "inner_indices", "halo_indptr", "halo_indices", "y", *MASKS,
)  # fmt: skip
OF_CUT = {
    "cover": ("cover",),
    "vertex": ("halo_legs", "send_legs", "mirror_indptr", "mirror_indices", "mirror_edge_attr"),
}
"""The arrays that only the parts of some cut have."""
NAMES = {f"{name}.npy" for name in (*NEEDED, "halo_rows", "x", *SPARSE_X, *ATTRIBUTES, "node_type", "ids", "held_out")}
REAL = ("float16", "float32", "float64")


class Book(Protocol):
    """The fields of a `partition.book.Book` against which its parts are checked."""

    @property
    def folder(self) -> Path: ...
    @property
    def parts(self) -> tuple[PartInfo, ...]: ...
    @property
    def nodes(self) -> int: ...
    @property
    def features(self) -> int: ...
    @property
    def classes(self) -> int: ...
    @property
    def splits(self) -> int: ...
    @property
    def multilabel(self) -> bool: ...
    @property
    def regression(self) -> bool: ...
    @property
    def num_parts(self) -> int: ...
    @property
    def cut(self) -> str: ...
    def array(self, index: int, name: str) -> np.ndarray: ...
    def is_here(self, index: int) -> bool: ...


def check_part(book: Book, index: int, arrays: Mapping[str, np.ndarray], again: str) -> None:
    """Refuse a part whose arrays are not what the book says, or whose indices point outside of it."""
    complaint = _forms(book, index, arrays) or _structure(book, index, arrays) or _rows(book, arrays)
    if book.cut == "vertex":
        complaint = complaint or _legs(book, index, arrays)
    if complaint:
        name, how = complaint
        raise InputError(f"{book.folder / f'part-{index}' / name}.npy {how}: {again}")


Complaint = tuple[str, str] | None  # (array, what is wrong with it)


def _forms(book: Book, index: int, arrays: Mapping[str, np.ndarray]) -> Complaint:
    """Check types and shapes."""
    info = book.parts[index]
    n, h, parts = info.inner, info.halo, book.num_parts
    nnz = arrays["x_indices"].size if "x_indices" in arrays else 0
    edges = {"inner": info.inner_edges, "halo": info.halo_edges}
    expected: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
        "nodes": (("int64",), (n,)),
        "halo_nodes": (("int64",), (h,)),
        "halo_ptr": (("int64",), (parts + 1,)),
        "send_ptr": (("int64",), (parts + 1,)),
        "degree": (("int32", "int64"), (n,)),  # int32 in version 1
        "halo_degree": (("int32", "int64"), (h,)),
        "y": _labels(book, n),
        **dict.fromkeys(MASKS, (("bool",), (n, book.splits))),
        **{f"{side}_indptr": (("int64",), (n + 1,)) for side in edges},
        **{f"{side}_indices": (("int32",), (count,)) for side, count in edges.items()},
    }
    if book.cut == "cover":
        expected["cover"] = ("bool",), (h,)
    if book.cut == "vertex":
        edges["mirror"] = info.mirror_edges
        expected |= {
            "halo_legs": (("uint8",), (h,)),
            "send_legs": (("uint8",), arrays["send_rows"].shape[:1] if "send_rows" in arrays else (0,)),
            "mirror_indptr": (("int64",), (h + 1,)),
            "mirror_indices": (("int32",), (info.mirror_edges,)),
        }
    if "x_indptr" in arrays:
        expected |= {"x_indptr": (("int64",), (n + 1,)), "x_indices": (("int32",), (nnz,)), "x_data": (REAL, (nnz,))}
    else:
        expected["x"] = (REAL, (n, book.features))
    for name, (dtypes, shape) in expected.items():
        if name not in arrays:
            return name, f"is missing; its shape is {list(shape)}"
        if arrays[name].shape != shape:
            return name, f"does not have the {shape[0]:,} rows that the book says, but shape {list(arrays[name].shape)}"
        if str(arrays[name].dtype) not in dtypes:
            return name, f"holds {arrays[name].dtype}, not {' or '.join(dtypes)}"
    if "send_rows" not in arrays or arrays["send_rows"].dtype != np.int32 or arrays["send_rows"].ndim != 1:
        return "send_rows", "is not a list of int32"
    return _extras(arrays, n, h, edges) or _held_out(book, index, arrays)


def _held_out(book: Book, index: int, arrays: Mapping[str, np.ndarray]) -> Complaint:
    """Check the pairs of nodes by which links are scored."""
    table = arrays.get("held_out")
    if table is None:
        return None
    first = sum(part.inner for part in book.parts[:index])
    if table.ndim != 2 or table.shape[1] != 4 or table.dtype != np.int64:
        return "held_out", "is not a table of int64 with four columns"
    target, source, real, split = table.T
    inner = (target >= first) & (target < first + book.parts[index].inner)
    if not (inner & (source >= 0) & (source < book.nodes) & np.isin(real, (0, 1)) & np.isin(split, (1, 2))).all():
        return "held_out", "names nodes that are not there, or another split than val (1) and test (2)"
    return None


def _extras(arrays: Mapping[str, np.ndarray], n: int, h: int, edges: Mapping[str, int]) -> Complaint:
    """Check types and shapes of the arrays that not every graph has."""
    if "halo_rows" in arrays and (arrays["halo_rows"].dtype != np.int32 or len(arrays["halo_rows"]) != h):
        return "halo_rows", f"does not have an int32 for each of {h:,} halo nodes"
    for name, kinds in (("node_type", "iu"), ("ids", "iuU")):
        if name in arrays and (arrays[name].shape != (n,) or arrays[name].dtype.kind not in kinds):
            return name, f"does not have a value for each of {n:,} nodes"
    names = [f"{side}_edge_attr" for side in edges]
    found = [arrays.get(name) for name in names]
    missing = [name for name, attributes in zip(names, found, strict=True) if attributes is None]
    if 0 < len(missing) < len(names):
        return missing[0], "is missing"
    for name, attributes, count in zip(names, found, edges.values(), strict=True):
        if attributes is None:
            continue
        if attributes.ndim not in (1, 2) or len(attributes) != count or str(attributes.dtype) not in REAL:
            return name, f"does not have a row of numbers for each of {count:,} edges"
        if found[0] is not None and (attributes.dtype, attributes.shape[1:]) != (found[0].dtype, found[0].shape[1:]):
            return name, "has rows of another shape than inner_edge_attr"
    return None


def _structure(book: Book, index: int, arrays: Mapping[str, np.ndarray]) -> Complaint:
    """Check that row starts ascend, indices are in range, and both ends of every link agree on its number of rows."""
    info = book.parts[index]
    n, h = info.inner, info.halo
    for name, end in (
        ("halo_ptr", h),
        ("send_ptr", arrays["send_rows"].size),
        ("inner_indptr", info.inner_edges),
        ("halo_indptr", info.halo_edges),
        *((("x_indptr", arrays["x_indices"].size),) if "x_indptr" in arrays else ()),
        *((("mirror_indptr", info.mirror_edges),) if book.cut == "vertex" else ()),
    ):
        if not ascends(arrays[name], end):
            return name, f"does not ascend from 0 to {end:,}"
    for name, limit in (
        ("nodes", book.nodes),
        ("halo_nodes", book.nodes),
        ("send_rows", n),
        ("inner_indices", n),
        ("halo_indices", h),
        *((("x_indices", book.features),) if "x_indices" in arrays else ()),
        *((("mirror_indices", n + h),) if book.cut == "vertex" else ()),
    ):
        if (place := outlier(arrays[name], limit)) is not None:
            return name, f"has {arrays[name][place]} in place {place:,}, but goes from 0 to {limit - 1:,}"
    here = np.diff(arrays["inner_indptr"]) + np.diff(arrays["halo_indptr"])  # a vertex-cut has the others elsewhere
    if (here > arrays["degree"]).any() or (book.cut != "vertex" and not np.array_equal(here, arrays["degree"])):
        return "degree", "is not the number of edges of each node"
    if outlier(arrays["halo_degree"], 2**62) is not None:
        return "halo_degree", "has a number below 0"
    sent, read = np.diff(arrays["send_ptr"]), np.diff(arrays["halo_ptr"])
    if sent[index] or read[index]:
        return "halo_ptr", "makes the part read its own rows"
    for other in range(book.num_parts):
        if other == index:
            continue
        group = slice(*arrays["halo_ptr"][other : other + 2])
        if "halo_rows" in arrays and outlier(arrays["halo_rows"][group], book.parts[other].inner) is not None:
            return "halo_rows", f"has a row that part {other} does not own"
        if not book.is_here(other):
            continue
        theirs = {name: book.array(other, f"{name}.npy") for name in ("halo_ptr", "send_ptr")}
        if any(ptr.shape != (book.num_parts + 1,) or ptr.dtype != np.int64 for ptr in theirs.values()):
            return "send_ptr", f"cannot be compared with that of part {other}"
        for name, mine, back in (("send_ptr", sent, "halo_ptr"), ("halo_ptr", read, "send_ptr")):
            if mine[other] != int(theirs[back][index + 1]) - int(theirs[back][index]):
                return name, f"has {mine[other]:,} rows for part {other}, whose {back} has another number"
    return None


def _legs(book: Book, index: int, arrays: Mapping[str, np.ndarray]) -> Complaint:
    """Check that the legs of mirrors are those of their edges, and that owners know them."""
    info, n = book.parts[index], book.parts[index].inner
    legs = np.zeros(n + info.halo, np.uint8)
    legs[arrays["halo_indices"] + np.int32(n)] = READ
    legs[arrays["mirror_indices"]] = READ
    legs[n:][np.diff(arrays["mirror_indptr"]) > 0] |= SUMMED
    if not np.array_equal(legs[n:], arrays["halo_legs"]) or not legs[n:].all():
        return "halo_legs", "does not say which mirrors are read and which are summed"
    for other in filter(book.is_here, range(book.num_parts)):
        group = slice(*book.array(other, "halo_ptr.npy")[index : index + 2])
        mine = slice(*arrays["send_ptr"][other : other + 2])
        if not np.array_equal(book.array(other, "halo_legs.npy")[group], arrays["send_legs"][mine]):
            return "send_legs", f"is not the halo_legs of part {other}"
    return None


def _labels(book: Book, n: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the types and the shape that y may have."""
    if book.regression:
        return ("float16", "float32", "float64"), (n, book.classes)
    return (("uint8",), (n, book.classes)) if book.multilabel else (("int64",), (n,))


def _rows(book: Book, arrays: Mapping[str, np.ndarray]) -> Complaint:
    """Check that labels are classes, and that the nodes of a split have one."""
    limit, least = (2, 0) if book.multilabel else (book.classes, -1)
    unlabelled = np.isnan(arrays["y"][:, 0]) if book.regression else arrays["y"] < 0
    if not book.regression and (place := outlier(arrays["y"], limit, least)) is not None:
        return "y", f"has {arrays['y'].reshape(-1)[place]} in place {place:,}, which is no class"
    for name in MASKS:
        if not book.multilabel and bool((arrays[name].any(axis=1) & unlabelled).any()):
            return name, "has a node without a label"
    return None
