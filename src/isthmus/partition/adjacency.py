"""CSR helpers that partitioners share: chunks of rows, selected rows, the symmetric graph, the graph inside a part."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from isthmus.graph.csr import pack, sources, targets, with_reverses
from isthmus.graph.graph import Graph

CHUNK_EDGES = 1 << 22  # edges in memory at a time while streaming: temporaries stay near 200 MB


def csr(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Return the graph's CSR as the native core takes it."""
    return np.ascontiguousarray(graph.indptr, np.int64), np.ascontiguousarray(graph.indices, np.int32)


def row_chunks(lengths: np.ndarray, most: int = CHUNK_EDGES) -> Iterator[slice]:
    """Yield slices of consecutive rows with at most ``most`` edges each (a single row may be longer)."""
    ends = np.cumsum(lengths)
    first = 0
    while first < len(lengths):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield slice(first, last)
        first = last


def take_rows(indptr: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths [m] of the given CSR rows and the positions of their edges, row after row."""
    starts = indptr[rows]
    lengths = indptr[rows + 1] - starts
    ends = np.cumsum(lengths)
    positions = np.arange(ends[-1] if len(ends) else 0)
    positions += np.repeat(starts - (ends - lengths), lengths)
    return lengths, positions


def symmetric_csr(indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the CSR of A + Aᵀ and its weights: 2 for an edge that existed in both directions, else 1."""
    nodes = len(indptr) - 1
    rows = np.repeat(np.arange(nodes, dtype=np.int32), np.diff(indptr))
    keys = with_reverses(pack(indices, rows))
    keys.sort()
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.zeros(0, np.int64)
    weights = np.diff(starts, append=len(keys))
    keys = keys[starts]
    counts = np.bincount(targets(keys), minlength=nodes)
    return np.concatenate([[0], np.cumsum(counts)]), sources(keys).copy(), weights


def induced_csr(
    indptr: np.ndarray, indices: np.ndarray, nodes: np.ndarray, place: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the CSR of the edges among ``nodes``; ``place`` [N] is the row of each of them, and -1 for other nodes."""
    counts, columns = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)]
    for chunk in row_chunks(indptr[nodes + 1] - indptr[nodes]):
        lengths, positions = take_rows(indptr, nodes[chunk])
        local = place[indices[positions]]
        inside = local >= 0
        rows = np.repeat(np.arange(len(lengths)), lengths)
        counts.append(np.bincount(rows[inside], minlength=len(lengths)))
        columns.append(local[inside])
    return np.cumsum(np.concatenate(counts)), np.concatenate(columns)
