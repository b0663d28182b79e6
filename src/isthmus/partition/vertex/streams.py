"""Vertex-cuts that place one edge after the other: EBV and HDRF, and the draws of random and hash.

EBV (Zhang et al. 2021, with the hosts of CDFGNN, eq. 24), edges in ascending order of the sum of their ends' degrees;
an edge (u, v) goes to the part p of least

    (1 − γ) (new_p(u) + new_p(v)) + γ (far_p(u) + far_p(v)) + |E_p| / (|E| / P) + |V_p| / (|V| / P)

new_p(u): p has no replica of u; far_p(u): and the host of p has fewer replicas of u than another one, where u's owner
will be, so that two messages more cross between hosts. As published: the host of p has no replica of u.

HDRF (Petroni et al. 2015), edges as they come; to the part of the largest

    Σ_{w ∈ {u, v}, w in p} (2 − degree_w / (degree_u + degree_v)) + λ (largest − |E_p|) / (1 + largest − smallest)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from isthmus.graph.graph import Graph
from isthmus.kernels.native import call, core
from isthmus.partition.adjacency import csr, row_chunks
from isthmus.partition.vertex import twin
from isthmus.partition.vertex.edges import Report, capacity, mark_replicas, num_placed, replica_sets, total_degree
from isthmus.partition.vertex.options import MESSAGES, VertexOptions

ONE = 1 << 40  # scores are whole numbers, in which this stands for one
CHUNK_EDGES = 1 << 24  # between two reports of progress
Key = Callable[[np.ndarray, np.ndarray], np.ndarray]


def ebv(graph: Graph, parts: int, options: VertexOptions, report: Report) -> np.ndarray:
    """Place the edges by EBV; int16 [E], set for one direction of the edges of a symmetric graph."""
    host = np.array(options.host_of(parts), np.int32)
    gamma, messages = options.weight, options.host_score == MESSAGES
    count, library = num_placed(graph), core()
    weights = round((1 - gamma) * ONE), round(gamma * ONE)
    costs = np.array([*weights, ONE * parts // max(1, count), ONE * parts // graph.num_nodes], np.int64)
    part = np.full(graph.num_edges, -1, np.int16)
    if library is None:
        return twin.ebv(graph, host, messages, costs, total_degree(graph), part)
    indptr, indices = csr(graph)
    order, rows = np.empty(count, np.int64), np.empty(count, np.int32)
    whole = graph.num_nodes, indptr, indices
    call(library.edges_by_degree, *whole, total_degree(graph), int(graph.symmetric), order, rows)
    sets, load = replica_sets(graph.num_nodes, parts), np.zeros(parts, np.int64)
    for first in range(0, count, CHUNK_EDGES):
        some = slice(first, min(first + CHUNK_EDGES, count))
        edges = some.stop - first, order[some], rows[some], indices
        call(library.ebv_place, *edges, parts, host, int(messages), costs, load, sets.shape[1], sets, part)
        report(some.stop, count)
    return part


def hdrf(
    graph: Graph,
    parts: int,
    options: VertexOptions,
    report: Report,
    begun: tuple[np.ndarray, np.ndarray] | None = None,
) -> np.ndarray:
    """Place the edges by HDRF, reading them once in the order of the file; int16 [E], set for one direction.

    ``begun`` (parts of the edges so far, high bool [N]) places only the edges between high nodes, and knows the rest.
    """
    part, high = begun or (np.full(graph.num_edges, -1, np.int16), None)
    size, sets = np.bincount(part[part >= 0], minlength=parts), replica_sets(graph.num_nodes, parts)
    room, library = capacity(num_placed(graph), parts, options.tolerance), core()
    degree = total_degree(graph)
    if begun:
        mark_replicas(graph, part, sets)
    if library is None:
        return twin.hdrf(graph, parts, room, degree, (part, size, sets), high)
    indptr = np.ascontiguousarray(graph.indptr, np.int64)
    for chunk in row_chunks(np.diff(indptr), CHUNK_EDGES):
        indices = np.ascontiguousarray(graph.indices[indptr[chunk.start] : indptr[chunk.stop]], np.int32)
        rows = chunk.start, chunk.stop, indptr, indices, int(graph.symmetric)
        loads = parts, room, twin.LAMBDA, size, sets.shape[1], sets, part
        call(library.hdrf_place, *rows, degree, None if high is None else high.view(np.uint8), *loads)
        report(int(indptr[chunk.stop]), graph.num_edges)
    return part


def random_edges(graph: Graph, parts: int, options: VertexOptions, report: Report) -> np.ndarray:
    """Draw the part of every edge, the same for both directions: the worst cut, a baseline."""
    return _drawn(graph, parts, report, lambda u, v: _mix(_mix(u + np.uint64(options.seed)) + v))


def hash_edges(graph: Graph, parts: int, options: VertexOptions, report: Report) -> np.ndarray:
    """Place every edge by a hash of its end of smaller degree (DBH, Xie et al. 2014), the smaller id on ties."""
    degree = total_degree(graph)

    def key(u: np.ndarray, v: np.ndarray) -> np.ndarray:
        return _mix(np.where(degree[v] < degree[u], v, u) + np.uint64(options.seed))

    return _drawn(graph, parts, report, key)


def _drawn(graph: Graph, parts: int, report: Report, key: Key) -> np.ndarray:
    """Return key(smaller end, larger end) modulo parts for every edge."""
    part = np.empty(graph.num_edges, np.int16)
    for chunk in row_chunks(np.diff(graph.indptr)):
        edges = slice(graph.indptr[chunk.start], graph.indptr[chunk.stop])
        rows = np.repeat(np.arange(chunk.start, chunk.stop), np.diff(graph.indptr[chunk.start : chunk.stop + 1]))
        columns = graph.indices[edges].astype(np.int64)
        small, large = np.minimum(rows, columns), np.maximum(rows, columns)
        part[edges] = key(small.astype(np.uint64), large.astype(np.uint64)) % np.uint64(parts)
        report(int(edges.stop), graph.num_edges)
    return part


def _mix(key: np.ndarray) -> np.ndarray:
    """Return 64 well mixed bits of each key (splitmix64)."""
    key = key + np.uint64(0x9E3779B97F4A7C15)
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))
