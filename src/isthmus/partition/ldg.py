"""Linear deterministic greedy: parts by streaming over the rows, for graphs that METIS cannot hold.

Stanton & Kliot, "Streaming graph partitioning for large distributed graphs" (2012): node v goes to the part p with the
largest |N(v) ∩ p| · (1 − load_p / capacity). Later passes start with empty loads and see, of the nodes to come, the
parts of the last pass (Nishimura & Ugander, "Restreaming graph partitioning", 2013). Two things are ours: several loads
are balanced at once (the scarcest decides), and inside a chunk hubs come first, so that small nodes even out the loads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from isthmus.kernels.native import core
from isthmus.partition.adjacency import row_chunks

CHUNK_EDGES = 1 << 25  # rows held at a time; larger chunks give better parts
_SCALE = 1 << 20  # room is an integer share of the capacity, so that both twins round alike


def ldg(
    indptr: np.ndarray,
    indices: np.ndarray,
    parts: int,
    weights: Callable[[slice], np.ndarray] | None = None,
    *,
    passes: int = 10,
    tolerance: float = 0.05,
    native: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """Part of every node, int32 [N]. Reads ``indices`` (may be memory-mapped) front to back, once per pass.

    ``weights(rows)`` gives int64 [len(rows), c], the c loads to balance to max/mean ≤ 1 + ``tolerance``, as far as
    greedy choices can; default: one per node. ``native=False`` runs the numpy twin.
    """
    weights = weights or (lambda rows: np.ones((rows.stop - rows.start, 1), np.int64))
    lengths = np.diff(indptr)
    chunks = list(row_chunks(lengths, CHUNK_EDGES))
    total = sum(weights(chunk).sum(axis=0) for chunk in chunks)
    capacity = np.maximum(1, np.ceil(total / parts * (1 + tolerance))).astype(np.int64)
    part = np.full(len(lengths), -1, np.int32)
    library = core() if native else None
    place = _place_native(library) if library is not None else _place_numpy
    for step in range(passes):
        load = np.zeros((parts, len(capacity)), np.int64)
        for chunk in chunks:
            starts = np.ascontiguousarray(indptr[chunk.start : chunk.stop + 1], np.int64)
            columns = np.ascontiguousarray(indices[starts[0] : starts[-1]], np.int32)
            order = np.argsort(-lengths[chunk], kind="stable")
            place(chunk.start, order, starts, columns, np.ascontiguousarray(weights(chunk)), capacity, load, part)
        if progress:
            progress(step + 1, passes)
    return part


def _place_native(library: ctypes.CDLL) -> Callable[..., None]:
    def place(first, order, starts, columns, weights, capacity, load, part):  # type: ignore[no-untyped-def]
        def pointer(array: np.ndarray) -> ctypes.c_void_p:
            return ctypes.c_void_p(array.ctypes.data)

        def number(value: int) -> ctypes.c_int64:
            return ctypes.c_int64(value)

        library.isthmus_ldg(
            number(first), number(len(order)), pointer(order), pointer(starts), pointer(columns), number(len(load)),
            number(len(capacity)), pointer(weights), pointer(capacity), pointer(load), pointer(part),
        )  # fmt: skip

    return place


def _place_numpy(
    first: int,
    order: np.ndarray,
    starts: np.ndarray,
    columns: np.ndarray,
    weights: np.ndarray,
    capacity: np.ndarray,
    load: np.ndarray,
    part: np.ndarray,
) -> None:
    """Place the rows ``order`` of the chunk that begins at node ``first``; updates ``load`` [P, c], ``part`` [N]."""
    index = np.arange(len(load))
    for row in order:
        near = part[columns[starts[row] - starts[0] : starts[row + 1] - starts[0]]]
        count = np.bincount(near[near >= 0], minlength=len(load))
        adds = np.flatnonzero(weights[row])  # of the loads that the node adds to, the scarcest decides
        left = (capacity - load - weights[row])[:, adds]
        share = np.sign(left) * (np.abs(left) * _SCALE // capacity[adds])  # rounded towards zero, as C does
        room = share.min(axis=1, initial=_SCALE)
        open_to = (count > 0) & (room > 0)
        candidates = index[open_to]
        if len(candidates):
            best = candidates[np.lexsort((candidates, -room[open_to], -(count * room)[open_to]))[0]]
        else:  # no neighbour placed yet, or no room beside any: the emptiest part
            best = int(np.argmax(room))
        load[best] += weights[row]
        part[first + row] = best
