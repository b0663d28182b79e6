"""The blocks that ByteGNN's partitioner assigns: the nodes that are nearest to one labelled node."""

from __future__ import annotations

import numpy as np

from isthmus.graph.graph import Graph
from isthmus.kernels.native import call, core
from isthmus.partition.adjacency import csr
from isthmus.partition.bytegnn import twin
from isthmus.partition.bytegnn.grouping import Blocks


def make_blocks(graph: Graph, hops: int, most: int) -> Blocks:
    """Return the blocks around labelled nodes, and pieces of at most ``most`` nodes of what lies beyond ``hops``.

    All blocks grow together, a hop at a time, along the edges that their nodes read. A node joins the block that
    reaches it first; of several in the same hop, the one with the smallest centre. Centres keep their own.
    """
    sets = labelled_sets(graph)
    centres = np.flatnonzero(sets.any(axis=1)).astype(np.int32)
    block, queue = np.full(graph.num_nodes, -1, np.int32), np.empty(graph.num_nodes, np.int32)
    block[centres] = queue[: len(centres)] = centres
    library, (indptr, indices) = core(), csr(graph)
    if library is None:
        twin.grow_blocks(hops, centres, indptr, indices, block)
        twin.gather_rest(most, indptr, indices, block)
    else:
        call(library.grow_blocks, hops, len(centres), indptr, indices, block, queue)
        call(library.gather_rest, graph.num_nodes, most, indptr, indices, block, queue)
    member = np.argsort(block, kind="stable").astype(np.int32)
    ordered = block[member]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    start = np.append(first, graph.num_nodes).astype(np.int64)
    return Blocks(member, start, np.ascontiguousarray(sets[ordered[first]]))  # no node but the centre is labelled


def labelled_sets(graph: Graph) -> np.ndarray:
    """Return in how many splits each node is a training, validation and test node, int64 [N, 3]."""
    masks = graph.train_mask, graph.val_mask, graph.test_mask
    return np.stack([mask.sum(axis=1) for mask in masks], axis=1).astype(np.int64)


def capacities(adds: np.ndarray, parts: int, tolerance: float) -> np.ndarray:
    """Return how many of each kind a part may have, int64 [c], from what all blocks or nodes add [n, c]."""
    return np.maximum(1, np.ceil(adds.sum(axis=0) / parts * (1 + tolerance))).astype(np.int64)
