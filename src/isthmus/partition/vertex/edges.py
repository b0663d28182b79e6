"""The edges that a vertex-cut places, and how the native core is called with arrays of numpy.

Both directions of an edge of a symmetric graph are one edge here: they live together, which costs no replica.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from isthmus.errors import InputError
from isthmus.graph.graph import Graph
from isthmus.kernels.native import call, core
from isthmus.partition.adjacency import csr, row_chunks
from isthmus.partition.vertex import twin

Report = Callable[[int, int], None]  # (done, total)


def num_placed(graph: Graph) -> int:
    """Return how many edges are placed: those of a symmetric graph once for both directions."""
    if not graph.symmetric:
        return graph.num_edges
    _check_pairs(graph)
    return graph.num_edges // 2


def _check_pairs(graph: Graph) -> None:
    """Refuse self loops of a symmetric graph: its edges are placed in pairs, and a loop is no pair."""
    for chunk in row_chunks(np.diff(graph.indptr)):
        rows = np.repeat(np.arange(chunk.start, chunk.stop), np.diff(graph.indptr[chunk.start : chunk.stop + 1]))
        if np.any(graph.indices[graph.indptr[chunk.start] : graph.indptr[chunk.stop]] == rows):
            raise InputError(f"{graph.name} has self loops, which this method cannot place: leave them out")


def total_degree(graph: Graph) -> np.ndarray:
    """Return the number of placed edges at each node, int64 [N]."""
    degree = np.diff(graph.indptr).astype(np.int64)
    if graph.symmetric:
        return degree
    for first in range(0, graph.num_edges, 1 << 24):
        degree += np.bincount(graph.indices[first : first + (1 << 24)], minlength=len(degree))
    return degree


def replica_sets(nodes: int, parts: int) -> np.ndarray:
    """Return an empty set of parts for every node: bits of uint64 [N, words]."""
    return np.zeros((nodes, -(-parts // 64)), np.uint64)


def mark_replicas(graph: Graph, part: np.ndarray, sets: np.ndarray) -> None:
    """Add the parts of its placed edges to the set of each node."""
    library = core()
    if library is None:
        twin.mark_replicas(graph, part, sets)
    else:
        call(library.mark_replicas, graph.num_nodes, *csr(graph), part, sets.shape[1], sets)


def capacity(edges: int, parts: int, tolerance: float) -> int:
    """Return how many edges a part may have: max/mean stays below 1 + tolerance, and all fit."""
    return max(-(-edges // parts), int(edges / parts * (1 + tolerance)))
