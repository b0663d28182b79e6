"""Cut a graph by linear deterministic greedy, which streams over the rows, for graphs too large for METIS.

Stanton & Kliot, "Streaming graph partitioning for large distributed graphs" (2012): node v goes to the part p with the
largest |N(v) ∩ p| · (1 − load_p / capacity). Later passes start with empty loads and use, for nodes not yet placed, the
parts of the last pass (Nishimura & Ugander, "Restreaming graph partitioning", 2013). Two additions: several loads are
balanced at once (the scarcest decides), and in a chunk hubs are placed first, so that small nodes even out the loads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from isthmus.kernels.native import core
from isthmus.partition.adjacency import row_chunks

CHUNK_EDGES = 1 << 25  # rows held at a time; larger chunks give better parts
_SCALE = 1 << 20  # free capacity is an integer share, so that C and numpy round alike


class Rows(NamedTuple):
    """A chunk of rows: the first node, the order in which they are placed, their edges and their loads."""

    first: int
    order: np.ndarray
    starts: np.ndarray  # of the rows' columns in the whole graph
    columns: np.ndarray
    weights: np.ndarray


def ldg(
    indptr: np.ndarray,
    indices: np.ndarray,
    parts: int,
    weights: Callable[[slice], np.ndarray] | None = None,
    *,
    passes: int = 10,
    tolerance: float = 0.05,
    native: bool = True,
) -> np.ndarray:
    """Return the part of every node, int32 [N]; read ``indices`` (may be memory-mapped) front to back, once per pass.

    ``weights(rows)`` gives int64 [len(rows), c], the c loads to balance to max/mean ≤ 1 + ``tolerance``, as far as
    greedy choices allow; default: one per node. ``native=False`` runs the numpy twin.
    """
    weights = weights or (lambda rows: np.ones((rows.stop - rows.start, 1), np.int64))
    lengths = np.diff(indptr)
    chunks = list(row_chunks(lengths, CHUNK_EDGES))
    total = sum(weights(chunk).sum(axis=0) for chunk in chunks)
    capacity = np.maximum(1, np.ceil(total / parts * (1 + tolerance))).astype(np.int64)
    part = np.full(len(lengths), -1, np.int32)
    library = core() if native else None
    place = _place_native(library) if library is not None else _place_numpy
    for _ in range(passes):
        load = np.zeros((parts, len(capacity)), np.int64)
        for chunk in chunks:
            starts = np.ascontiguousarray(indptr[chunk.start : chunk.stop + 1], np.int64)
            columns = np.ascontiguousarray(indices[starts[0] : starts[-1]], np.int32)
            order = np.argsort(-lengths[chunk], kind="stable")
            rows = Rows(chunk.start, order, starts, columns, np.ascontiguousarray(weights(chunk)))
            place(rows, capacity, load, part)
    return part


def _place_native(library: ctypes.CDLL) -> Callable[..., None]:
    def place(rows: Rows, capacity: np.ndarray, load: np.ndarray, part: np.ndarray) -> None:
        def pointer(array: np.ndarray) -> ctypes.c_void_p:
            return ctypes.c_void_p(array.ctypes.data)

        def number(value: int) -> ctypes.c_int64:
            return ctypes.c_int64(value)

        library.isthmus_ldg(
            number(rows.first), number(len(rows.order)), pointer(rows.order), pointer(rows.starts),
            pointer(rows.columns), number(len(load)), number(len(capacity)), pointer(rows.weights),
            pointer(capacity), pointer(load), pointer(part),
        )  # fmt: skip

    return place


def _place_numpy(rows: Rows, capacity: np.ndarray, load: np.ndarray, part: np.ndarray) -> None:
    """Place the rows of a chunk, in order; update ``load`` [P, c] and ``part`` [N]."""
    first, order, starts, columns, weights = rows
    index = np.arange(len(load))
    for row in order:
        near = part[columns[starts[row] - starts[0] : starts[row + 1] - starts[0]]]
        count = np.bincount(near[near >= 0], minlength=len(load))
        adds = np.flatnonzero(weights[row])  # the scarcest of the loads that the node adds to decides
        left = (capacity - load - weights[row])[:, adds]
        share = np.sign(left) * (np.abs(left) * _SCALE // capacity[adds])  # rounded towards zero, as C does
        room = share.min(axis=1, initial=_SCALE)
        open_to = (count > 0) & (room > 0)
        candidates = index[open_to]
        if len(candidates):
            best = candidates[np.lexsort((candidates, -room[open_to], -(count * room)[open_to]))[0]]
        else:  # no neighbour placed yet, or no space where they are: the emptiest part
            best = int(np.argmax(room))
        load[best] += weights[row]
        part[first + row] = best
