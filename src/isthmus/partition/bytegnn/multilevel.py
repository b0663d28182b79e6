"""Assign blocks by what batches read: the graph of blocks goes to METIS, then nodes move one by one.

Ours, for graphs where few nodes are labelled. The greedy assignment of algorithm 2 decides on the first blocks before
it has seen their neighbours; METIS sees the whole graph of blocks, which is small then. An edge u → v weighs as much as
it is expected to be read: the times that v draws neighbours within K hops of the training nodes, times its chance of
drawing u.
"""

from __future__ import annotations

import numpy as np

from isthmus.graph.graph import Graph
from isthmus.kernels.native import call, core
from isthmus.partition.adjacency import csr, row_chunks
from isthmus.partition.bytegnn import twin
from isthmus.partition.bytegnn.blocks import capacities, labelled_sets
from isthmus.partition.bytegnn.grouping import Blocks
from isthmus.partition.metis import MetisOptions, kway

FANOUT = 10  # neighbours that a node is supposed to draw at each hop
CHUNK_EDGES = 1 << 24  # between two reports of progress
_TOTAL = 1 << 30  # of all weights that METIS gets, so that no sum overflows
_READS = 1000  # the mean weight of an edge that is read
_STAYS = 4  # kind of a node that is in several sets


def assign_by_reads(graph: Graph, blocks: Blocks, parts: int, reads: np.ndarray, options: MetisOptions) -> np.ndarray:
    """Return the part of every node, int32 [N]; balances training, validation and test nodes, and all nodes."""
    loads = np.concatenate([blocks.adds, blocks.sizes[:, None]], axis=1)
    balanced = loads[:, loads.sum(axis=0) > parts]
    indptr, columns, weights = _both_ways(*contract(graph, blocks, reads))
    of_block = kway(indptr, columns, min(parts, blocks.count), options, node_weights=balanced, edge_weights=weights)
    return of_block[blocks.number]


def expected_reads(graph: Graph, hops: int, fanout: int = FANOUT) -> np.ndarray:
    """Return how often each edge into a node is read by a batch of all training nodes, int64 [N], in small units."""
    indptr, indices = csr(graph)
    seeds = graph.train_mask.any(axis=1)
    chance = np.asarray(seeds if seeds.any() else ~seeds, np.float64)
    share = np.minimum(1.0, fanout / np.maximum(1, np.diff(indptr)))
    reads, library = np.zeros(graph.num_nodes), core()
    for _ in range(hops):
        per_edge = np.asarray(chance * share)
        reads += per_edge
        if library is None:
            twin.spread_reads(indptr, indices, per_edge, chance)
        else:
            call(library.spread_reads, 0, graph.num_nodes, indptr, indices, per_edge, chance)
    mean = reads[reads > 0].mean() if (reads > 0).any() else 1.0
    return np.maximum(1, np.rint(reads * (_READS / mean))).astype(np.int64)


def contract(graph: Graph, blocks: Blocks, reads: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the CSR of the edges between blocks, and their weights: the sums of ``reads`` of the edges' targets."""
    library, edges = core(), csr(graph)
    if library is None:
        return twin.contract_blocks(blocks, edges, reads)
    indptr = np.zeros(blocks.count + 1, np.int64)
    given = 0, blocks.count, blocks.start, blocks.member, *edges, blocks.number, reads
    call(library.contract_blocks, *given, np.full(blocks.count, -1, np.int64), indptr, None, None)
    columns, weights = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.int64)
    call(library.contract_blocks, *given, np.full(blocks.count, -1, np.int64), indptr, columns, weights)
    return indptr, columns, weights


def refine(graph: Graph, part: np.ndarray, parts: int, reads: np.ndarray, passes: int, tolerance: float) -> np.ndarray:
    """Move nodes to the part with which they share the most reads, within the same limits, until few move."""
    indptr, indices = csr(graph)
    sets = labelled_sets(graph)
    kind = np.where(sets.sum(axis=1) > 1, _STAYS, np.where(sets.any(axis=1), sets.argmax(axis=1), 3)).astype(np.int8)
    loads = np.concatenate([sets, np.ones((graph.num_nodes, 1), np.int64)], axis=1)
    limits = capacities(loads, parts, tolerance)
    load = np.stack([np.bincount(part, column, parts) for column in loads.T], axis=1).astype(np.int64)
    library, symmetric, part = core(), int(graph.symmetric), np.ascontiguousarray(part, np.int32)
    load = np.ascontiguousarray(load)
    for _ in range(passes):
        moved = 0
        for some in row_chunks(np.diff(indptr), CHUNK_EDGES):
            if library is None:
                moved += twin.refine_nodes(some, (indptr, indices), symmetric, (reads, kind), (limits, load, part))
                continue
            given = indptr, indices, symmetric, reads, kind, parts, limits, load, part
            moved += call(library.refine_nodes, some.start, some.stop, *given)
        if moved * 2000 < graph.num_nodes:
            break
    return part


def _both_ways(
    indptr: np.ndarray, columns: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the CSR of A + Aᵀ with weights that METIS can sum."""
    count = len(indptr) - 1
    rows = np.repeat(np.arange(count, dtype=np.int64), np.diff(indptr))
    keys = np.concatenate([rows * count + columns, columns.astype(np.int64) * count + rows])
    order = np.argsort(keys, kind="stable")
    keys, both = keys[order], np.concatenate([weights, weights])[order]
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.zeros(0, np.int64)
    sums = np.add.reduceat(both, first) if len(first) else both
    small = np.maximum(1, sums * min(1.0, _TOTAL / max(1, int(sums.sum())))).astype(np.int64)
    keys = keys[first]
    ends = np.concatenate([[0], np.cumsum(np.bincount(keys // count, minlength=count))])
    return ends, (keys % count).astype(np.int32), small
