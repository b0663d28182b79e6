"""Vertex-cuts by neighbourhood expansion: NE (Zhang et al. 2017) and HEP (Mayer & Jacobsen 2021).

A part grows around a start: of the nodes inside, the one with the fewest neighbours outside is expanded next, that is,
its neighbours join; an edge belongs to the part as soon as both its ends are inside. HEP holds in memory only the edges
at nodes of low degree (at most τ times the mean). Nodes of high degree count as inside everywhere and are not expanded,
and the edges between two of them are streamed by HDRF afterwards. With τ = ∞ it is NE.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isthmus.errors import InputError
from isthmus.graph.graph import Graph
from isthmus.kernels.native import call, core
from isthmus.partition.adjacency import csr
from isthmus.partition.metis import free_memory
from isthmus.partition.vertex import twin
from isthmus.partition.vertex.edges import Report, num_placed, total_degree
from isthmus.partition.vertex.options import VertexOptions
from isthmus.partition.vertex.streams import hdrf

BYTES_PER_END = 8  # of an edge in memory, at each end of low degree
MOST_EDGES = 2**32 - 1  # edges in memory have numbers of 32 bits


def ne(graph: Graph, parts: int, options: VertexOptions, report: Report) -> np.ndarray:
    """Place the edges by neighbourhood expansion alone; int16 [E], set for one direction of a symmetric graph."""
    return hep(graph, parts, replace(options, tau=np.inf), report)


def hep(graph: Graph, parts: int, options: VertexOptions, report: Report) -> np.ndarray:
    """Place the edges by expansion, those between nodes of high degree by streaming; int16 [E], as `ne` does."""
    if graph.num_edges > MOST_EDGES:
        raise InputError(f"expansion holds at most {MOST_EDGES:,} edges, not {graph.num_edges:,}: use --method hdrf")
    degree = total_degree(graph)
    tau = tau_of(graph, options)
    high = degree > (tau * degree.mean() if np.isfinite(tau) else np.inf)
    part = np.full(graph.num_edges, -1, np.int16)
    streamed = _count_between(graph, high)
    rooms = [-(-(num_placed(graph) - streamed) // parts)] * (parts - 1)
    order = np.random.default_rng(options.seed).permutation(graph.num_nodes).astype(np.int32)
    if core() is None:
        slow = twin.Expansion(graph, high, part)
        for k, room in enumerate(rooms):
            slow.grow(k, room, order)
    else:
        _expand(graph, rooms, (order, high, degree), part, report)
    left = _unplaced(graph, part) & ~_between(graph, high) if streamed else _unplaced(graph, part)
    part[left] = parts - 1
    return hdrf(graph, parts, options, lambda done, total: None, (part, high)) if streamed else part


def tau_of(graph: Graph, options: VertexOptions) -> float:
    """Return the τ in force: the one that was given, or as large as half of the free memory allows."""
    return most_tau(total_degree(graph), free_memory()) if options.tau is None else options.tau


def most_tau(degree: np.ndarray, memory: int | None) -> float:
    """Return the largest τ such that the edges at low-degree nodes take at most half of ``memory`` bytes."""
    ascending = np.sort(degree)
    fits = np.cumsum(ascending) * BYTES_PER_END <= (np.inf if memory is None else memory / 2)
    if fits.all():
        return np.inf
    highest = ascending[fits][-1] if fits.any() else 0
    return float(max(highest, 1) / max(degree.mean(), 1e-9))


def _expand(
    graph: Graph, rooms: list[int], nodes: tuple[np.ndarray, np.ndarray, np.ndarray], part: np.ndarray, report: Report
) -> None:
    library, (order, high, degree) = core(), nodes
    assert library is not None
    begin = np.concatenate([[0], np.cumsum(np.where(high, 0, degree))]).astype(np.int64)
    end, size = np.empty(graph.num_nodes, np.int64), int(begin[-1])
    neighbour, edge = np.empty(size, np.int32), np.empty(size, np.uint32)
    lists = begin, end, neighbour, edge
    call(library.list_edges, graph.num_nodes, *csr(graph), int(graph.symmetric), high.view(np.uint8), *lists)
    member = np.where(high, np.int32(2**31 - 1), np.int32(-1)).astype(np.int32)
    keys = int(np.where(high, 0, degree).max(initial=0)) + 1
    head, links = np.full(keys, -1, np.int32), np.full(3 * graph.num_nodes, -1, np.int32)
    start = np.zeros(1, np.int64)
    for k, room in enumerate(rooms):
        call(
            library.expand_part, k, room, graph.num_nodes, order, start, *lists, keys, head, links, member, part
        )  # fmt: skip
        report(k + 1, len(rooms) + 1)


def _count_between(graph: Graph, high: np.ndarray) -> int:
    return int(np.count_nonzero(_between(graph, high))) if high.any() else 0


def _between(graph: Graph, high: np.ndarray) -> np.ndarray:
    """Return which edges run between two high nodes and are placed, bool [E]."""
    rows = np.repeat(high, np.diff(graph.indptr))
    return rows & high[graph.indices] & _placed(graph)


def _placed(graph: Graph) -> np.ndarray:
    """Return which edges are placed: of a symmetric graph one of each pair, bool [E]."""
    if not graph.symmetric:
        return np.ones(graph.num_edges, bool)
    return graph.indices < np.repeat(np.arange(graph.num_nodes, dtype=np.int32), np.diff(graph.indptr))


def _unplaced(graph: Graph, part: np.ndarray) -> np.ndarray:
    return (part < 0) & _placed(graph)
