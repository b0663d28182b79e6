"""Check every input once and fully; a failed check is one line that says where and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from isthmus.errors import InputError
from isthmus.graph.graph import SparseRows
from isthmus.graph.ranges import ascends

ROWS = 1 << 16  # rows checked at a time, so that no check doubles the memory


def most_classes(nodes: int) -> int:
    """Return how many classes a graph of this many nodes may have; more are a mistake and would fill the memory."""
    return max(nodes, 1 << 16)


@contextmanager
def named(name: str) -> Iterator[None]:
    """Put the name of the input before the message of a failed check."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def count(given: int | None, rows: int) -> int:
    """Return the number of nodes, which is that of the feature rows and must agree with the given one."""
    if rows == 0:
        raise InputError("the graph has no node: give at least one row of x")
    if given is not None and given != rows:
        raise InputError(f"num_nodes is {given:,} but x has {rows:,} rows: make them agree, one row per node")
    _few_enough(rows)
    return rows


def _few_enough(rows: int) -> None:
    if rows >= 2**31:
        raise InputError(f"{rows:,} nodes are more than 31-bit ids can name: split the graph first")


def rows(x: np.ndarray | SparseRows) -> np.ndarray | SparseRows:
    """Return the feature rows as floats; refuse any that are not finite."""
    if isinstance(x, SparseRows):
        return _sparse_rows(x)
    if x.ndim != 2:
        raise InputError(f"x has shape {list(x.shape)}, expected [N, F]: give one row of features per node")
    _few_enough(len(x))  # before all rows are scanned
    x = _floats(x, "x")
    for a in range(0, len(x), ROWS):
        finite = np.isfinite(x[a : a + ROWS])
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            raise InputError(_not_finite(a + row, column, x[a + row, column]))
    return x


def _sparse_rows(x: SparseRows) -> SparseRows:
    nnz = x.data.size
    indptr, indices = _integers(x.indptr, "x_indptr"), _integers(x.indices, "x_indices")
    if not 0 <= x.width < 2**31:
        raise InputError(f"x has {x.width:,} columns: correct x_shape; at most 2³¹ − 1 are possible")
    if not ascends(indptr.astype(np.int64, copy=False), nnz):
        raise InputError(f"x_indptr does not ascend from 0 to the {nnz:,} values of x_data: save x as CSR again")
    if indices.shape != (nnz,) or x.data.ndim != 1:
        raise InputError(f"x_indices has {indices.size:,} entries but x_data {nnz:,}: save x as CSR again")
    if nnz and (indices.min() < 0 or indices.max() >= x.width):
        raise InputError(f"x_indices names column {_outlier(indices, x.width)} of {x.width}: correct it or x_shape")
    data = _floats(x.data, "x_data")
    bad = np.flatnonzero(~np.isfinite(data))
    if len(bad):
        row = int(np.searchsorted(indptr, bad[0], "right")) - 1
        raise InputError(_not_finite(row, indices[bad[0]], data[bad[0]]))
    return SparseRows(indptr.astype(np.int64, copy=False), indices.astype(np.int32, copy=False), data, int(x.width))


def _not_finite(row: int, column: int, value: float) -> str:
    return f"x has {value} in row {row}, column {column}: replace NaN and Inf, e.g. by the mean of the column"


def is_regression(y: np.ndarray, asked: str | None) -> bool:
    """Return whether y are values to predict: as asked for or, if nothing is, if a value is no whole number."""
    if asked is not None or y.dtype.kind != "f" or not y.ndim:
        return asked == "regression"
    return any(bool(np.any(block != np.rint(block), where=np.isfinite(block))) for block in _blocks(y))


def values(y: np.ndarray, n: int) -> np.ndarray:
    """Return the targets of a regression, float [N, T]; a node with a NaN is unlabelled."""
    if y.ndim not in (1, 2) or len(y) != n or not y.size:
        raise InputError(f"y has shape {list(y.shape)} but x has {n:,} rows: give [{n}], or [{n}, T] for T targets")
    y = _floats(y, "y").reshape(n, -1)
    infinite = np.argwhere(np.isinf(y))
    if len(infinite):
        raise InputError(f"y of node {infinite[0][0]} is infinite: give NaN for unlabelled")
    return np.where(np.isnan(y).any(axis=1, keepdims=True), np.nan, y)


def _blocks(y: np.ndarray) -> Iterator[np.ndarray]:
    for a in range(0, len(y), ROWS):
        yield y[a : a + ROWS]


def labels(y: np.ndarray, n: int, num_classes: int | None) -> tuple[np.ndarray, int]:
    """Return the labels as int64 [N] (−1 = none) or uint8 [N, C], and the number of classes."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim not in (1, 2) or len(y) != n:
        raise InputError(f"y has shape {list(y.shape)} but x has {n:,} rows: give [{n}], or [{n}, C] for multi-label")
    if y.dtype.kind not in "biuf":
        raise InputError(f"y has unknown dtype {y.dtype}: give integers, −1 for unlabelled")
    if num_classes is not None and num_classes > most_classes(n):
        raise InputError(
            f"num_classes is {num_classes:,} for {n:,} nodes: correct it; at most {most_classes(n):,} are possible"
        )
    if y.ndim == 2:
        return _label_sets(y, num_classes)
    if y.dtype.kind == "f":
        y = np.where(np.isnan(y), -1, y)  # OGB's way of saying unlabelled
        y = y.astype(np.float32) if y.dtype.itemsize == 2 else y  # 2³¹ is beyond float16
    broken = np.flatnonzero((np.abs(y) >= 2**31) | (y != np.rint(y))) if y.dtype.kind in "fu" else np.empty(0, int)
    if len(broken):
        node = broken[0]
        raise InputError(
            f"y of node {node} is {y[node]}, not a class number: give integers, −1 for unlabelled, or --task "
            "regression if it is a value"
        )
    y = y.astype(np.int64, copy=False)
    found = int(y.max()) + 1
    if y.min() < -1:
        raise InputError(f"y of node {int(y.argmin())} is {y.min()}: give −1 for unlabelled, else 0 to C − 1")
    if num_classes is None:
        if found > n:
            where = f"y of node {int(y.argmax())} is {found - 1:,}"
            raise InputError(f"{where}: more classes than {n:,} nodes; give −1 for unlabelled, else 0 to C − 1")
        num_classes = found
    if found > num_classes:
        where = f"y of node {int(y.argmax())} is {found - 1}"
        raise InputError(f"{where} but there are {num_classes} classes: correct y or num_classes")
    if num_classes < 1:
        raise InputError("no node has a label: give y with at least one class")
    return y, num_classes


def empty_classes(y: np.ndarray, num_classes: int) -> str | None:
    """Return a line that warns of classes without a node, as when labels count from 1; None if every class has one."""
    if y.ndim == 2:
        return None
    empty = np.flatnonzero(np.bincount(y[y >= 0], minlength=num_classes) == 0)
    if not len(empty):
        return None
    which = ", ".join(str(label) for label in empty[:5]) + (" …" if len(empty) > 5 else "")
    count = f"y has labels up to {num_classes - 1}, hence {num_classes} classes, but no node has label {which}"
    if empty[0] == 0:
        return f"{count}: labels count from 0, so subtract {int(y[y >= 0].min())} if that is not meant"
    return f"{count}: give num_classes if that is meant"


def _label_sets(y: np.ndarray, num_classes: int | None) -> tuple[np.ndarray, int]:
    if not y.shape[1]:
        raise InputError(f"y has shape {list(y.shape)}, no label at all: give [{len(y)}], or [{len(y)}, C]")
    if num_classes is not None and num_classes != y.shape[1]:
        raise InputError(f"y has {y.shape[1]} columns but num_classes is {num_classes}: make them agree")
    for a in range(0, len(y), ROWS):
        block = y[a : a + ROWS]
        wrong = (block != 0) & (block != 1)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise InputError(f"y[{a + row}, {column}] is {block[row, column]}: multi-label y holds 0 and 1 only")
    return y.astype(np.uint8, copy=False), y.shape[1]


def masks(
    train: np.ndarray, val: np.ndarray, test: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the train, validation and test masks as bool [N, S].

    Refuse masks that overlap, select unlabelled nodes, or leave a split without training nodes.
    """
    names = ("train_mask", "val_mask", "test_mask")
    found = [_mask(name, mask, len(y)) for name, mask in zip(names, (train, val, test), strict=True)]
    widths = [mask.shape[1] for mask in found]
    if len(set(widths)) > 1:
        raise InputError(f"{', '.join(names)} have {widths} splits: give each mask the same number of columns")
    for i in range(3):
        for j in range(i + 1, 3):
            both = found[i] & found[j]
            if both.any():
                node, split = np.argwhere(both)[0]
                where = f"{both.sum():,} nodes (first: node {node}{_split(split, widths)})"
                raise InputError(f"{names[i]} and {names[j]} overlap in {where}: keep each node in one mask")
    empty = np.flatnonzero(~found[0].any(axis=0))
    if len(empty):
        raise InputError(f"{names[0]} has no training node{_split(empty[0], widths)}: mark at least one")
    if y.ndim == 1 or y.dtype.kind == "f":
        unlabelled = y < 0 if y.ndim == 1 else np.isnan(y[:, 0])
        for name, mask in zip(names, found, strict=True):
            blank = np.flatnonzero(mask.any(axis=1) & unlabelled)
            if len(blank):
                where = f"{len(blank):,} nodes without a label (first: node {blank[0]})"
                raise InputError(f"{name} has {where}: label them or take them out")
    train, val, test = found
    return train, val, test


def _mask(name: str, mask: np.ndarray, n: int) -> np.ndarray:
    if mask.ndim not in (1, 2) or len(mask) != n or mask.shape[-1] == 0:
        raise InputError(f"{name} has shape {list(mask.shape)} but x has {n:,} rows: give [{n}] or [{n}, S] booleans")
    if mask.dtype.kind in "iu" and mask.size and mask.min() >= 0 and mask.max() <= 1:
        mask = mask.astype(bool)
    if mask.dtype != np.bool_:
        raise InputError(f"{name} has dtype {mask.dtype}, expected bool: write e.g. mask.astype(bool)")
    return mask.reshape(n, -1)


def _split(split: int, widths: list[int]) -> str:
    return f" of split {split}" if widths[0] > 1 else ""


def edges(src: np.ndarray, dst: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return sources and targets as integers; refuse ids outside 0 … N−1."""
    if src.ndim != 1 or src.shape != dst.shape:
        raise InputError(f"sources have shape {list(src.shape)}, targets {list(dst.shape)}: give edge_index as [2, E]")
    if len(src) == 0:
        raise InputError("the graph has no edge: give at least one")
    src, dst = _integers(src, "edge_index"), _integers(dst, "edge_index")
    for which, ids in (("source", src), ("target", dst)):
        if ids.min() < 0 or ids.max() >= n:
            edge = int(np.flatnonzero((ids < 0) | (ids >= n))[0])
            raise InputError(
                f"edge {edge} has {which} {ids[edge]}, out of range for {n:,} nodes: ids go from 0 to {n - 1}; "
                "give x a row for every node, or correct the ids"
            )
    return src, dst


def one_directional(lonely: int, source: int, target: int) -> str:
    return (
        f"{lonely:,} edges have no reverse (first: {source} → {target} without {target} → {source}): "
        "add the reverses with --undirected, or keep the edges as they are with --directed"
    )


def edge_attr(attr: np.ndarray | None, edges: int) -> np.ndarray | None:
    """Return the attributes of the edges, [E] or [E, D]; refuse values that are not finite."""
    if attr is None:
        return None
    if attr.ndim not in (1, 2) or len(attr) != edges:
        raise InputError(f"edge_attr has shape {list(attr.shape)} for {edges:,} edges: give one row per edge")
    if attr.ndim == 2 and not attr.shape[1]:
        raise InputError(f"edge_attr has shape {list(attr.shape)}, no value at all: leave it out")
    attr = _floats(attr, "edge_attr")
    bad = np.argwhere(~np.isfinite(attr))
    if len(bad):
        raise InputError(f"edge_attr has {attr[tuple(bad[0])]} in row {bad[0][0]}: replace NaN and Inf")
    return attr


def node_type(kinds: np.ndarray | None, n: int) -> np.ndarray | None:
    """Return the type of every node, int64 [N]."""
    if kinds is None:
        return None
    if kinds.shape != (n,):
        raise InputError(f"node_type has shape {list(kinds.shape)} but x has {n:,} rows: give it as [{n}]")
    return _integers(kinds, "node_type").astype(np.int64, copy=False)


def _integers(array: np.ndarray, name: str) -> np.ndarray:
    if array.dtype.kind not in "iu":
        raise InputError(f"{name} has dtype {array.dtype}, expected integers: save it as int64 or int32")
    return array


def _floats(array: np.ndarray, name: str) -> np.ndarray:
    """Return floats as they are, whole numbers and booleans as float32; refuse anything else."""
    if array.dtype.kind == "f" and array.dtype.itemsize <= 8:
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind in "biu":
        return array.astype(np.float32)
    raise InputError(f"{name} has unknown dtype {array.dtype}: save it as float16, float32 or float64")


def _outlier(values: np.ndarray, limit: int) -> int:
    return int(values[(values < 0) | (values >= limit)][0])
