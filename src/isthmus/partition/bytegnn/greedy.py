"""Assign blocks one after the other: ByteGNN's algorithm 2, with guards or as it is printed.

Block B goes to the part P_j of the largest CE_j · BS_j, where CE_j is the number of edges between B and P_j divided by
|P_j|, and BS_j = 1 − Σ_c α_c |P_j(c)| / C(c) falls as the part fills with training, validation and test nodes. With
α_c in proportion to the sizes of the three sets, BS_j = 1 − (labelled nodes of P_j) / (their mean).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from isthmus.graph.graph import Graph
from isthmus.kernels.native import call, core
from isthmus.partition.adjacency import csr, row_chunks
from isthmus.partition.bytegnn import twin
from isthmus.partition.bytegnn.blocks import capacities
from isthmus.partition.bytegnn.grouping import Blocks

CHUNK_NODES = 1 << 18  # between two reports of progress


def assign_greedily(
    graph: Graph,
    blocks: Blocks,
    parts: int,
    tolerance: float,
    guarded: bool = True,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> np.ndarray:
    """Return the part of every node, int32 [N]: those with the most labelled nodes first, equal ones by centre.

    ``guarded``: one is added to CE, so that the first block of all has a choice; equal parts are told apart by their
    loads; no part takes more than 1 + ``tolerance`` of its share of a set. Blocks without a labelled node come last and
    balance the numbers of nodes instead.
    """
    most = blocks.adds.max(axis=1)
    order = np.argsort(-most, kind="stable").astype(np.int64)
    load, size = np.zeros((parts, 3), np.int64), np.zeros(parts, np.int64)
    part = np.full(graph.num_nodes, -1, np.int32)
    limits = capacities(blocks.adds, parts, tolerance)
    state = parts, graph.num_nodes, max(1, int(blocks.adds.sum())), limits, load, size, part
    library, edges = core(), csr(graph)
    for some in row_chunks(blocks.sizes[order], CHUNK_NODES):
        if library is None:
            twin.assign_blocks(order[some], blocks, edges, guarded, state)
        else:
            given = order, blocks.start, blocks.member, *edges, blocks.adds
            call(library.assign_blocks, some.start, some.stop, *given, int(guarded), *state)
        report(1 + some.stop, 1 + blocks.count)
    return part
