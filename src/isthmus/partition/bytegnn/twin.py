"""The loops of ByteGNN's partitioner in numpy, as clear as they can be; the native core has the same (blocks.cpp)."""

from __future__ import annotations

import numpy as np

from isthmus.partition.bytegnn.grouping import Blocks

_SCALE = 1 << 20
Edges = tuple[np.ndarray, np.ndarray]  # indptr, indices


def grow_blocks(hops: int, centres: np.ndarray, indptr: np.ndarray, indices: np.ndarray, block: np.ndarray) -> None:
    """Let blocks take the nodes that theirs read, hop by hop; ``block`` [N] is -1 but at the centres."""
    frontier = centres.tolist()
    for _ in range(hops):
        reached = []
        for v in frontier:
            for u in indices[indptr[v] : indptr[v + 1]]:
                if block[u] < 0:
                    block[u] = block[v]
                    reached.append(u)
        frontier = reached


def gather_rest(most: int, indptr: np.ndarray, indices: np.ndarray, block: np.ndarray) -> None:
    """Give the nodes without a block pieces of at most ``most`` nodes, grown from the smallest."""
    for start in np.flatnonzero(block < 0):
        if block[start] >= 0:
            continue
        block[start], queue = start, [start]
        for v in queue:
            for u in indices[indptr[v] : indptr[v + 1]]:
                if block[u] < 0 and len(queue) < most:
                    block[u] = start
                    queue.append(u)


def assign_blocks(order: np.ndarray, blocks: Blocks, edges: Edges, guarded: bool, state: tuple) -> None:
    """Give some blocks a part each, in order; see `greedy.assign_greedily` for ``state``."""
    parts, nodes, labelled, capacity, load, size, part = state
    indptr, indices = edges
    for b in order:
        members, adds = blocks.member[blocks.start[b] : blocks.start[b + 1]], blocks.adds[b]
        near = np.zeros(parts, np.int64)
        for v in members:
            beside = part[indices[indptr[v] : indptr[v + 1]]]
            near += np.bincount(beside[beside >= 0], minlength=parts)
        has, all_of_them = (load.sum(axis=1), labelled) if adds.any() else (size, nodes)
        room = _SCALE - _SCALE * parts * has // all_of_them
        if guarded:
            full = ((load + adds > capacity) & (adds > 0)).any(axis=1)
            score = ((near + 1) * room).astype(float) / np.maximum(size, 1)
            open_to = ~full & (room > 0)
            labels = load.sum(axis=1) if adds.any() else np.zeros(parts, np.int64)
            by_load = (np.arange(parts), size, labels)
            best = np.lexsort((*by_load, -score, ~open_to))[0] if open_to.any() else np.lexsort((*by_load, full))[0]
        elif not adds.any():
            best = np.argmin(size)
        else:
            best = np.argmax(np.where(size > 0, (near * room).astype(float) / np.maximum(size, 1), 0.0))
        load[best] += adds
        size[best] += len(members)
        part[members] = best


def spread_reads(indptr: np.ndarray, indices: np.ndarray, per_edge: np.ndarray, to: np.ndarray) -> None:
    """Add what one more hop reads: ``per_edge`` [N] of each node goes to all that it reads."""
    np.add.at(to, indices, np.repeat(per_edge, np.diff(indptr)))


def contract_blocks(blocks: Blocks, edges: Edges, reads: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the CSR of the edges between blocks with the sums of their weights; columns in the order they are met."""
    indptr, indices = edges
    ends, columns, weights = [0], list[int](), list[int]()
    for b in range(blocks.count):
        row: dict[int, int] = {}
        for v in blocks.member[blocks.start[b] : blocks.start[b + 1]]:
            for other in blocks.number[indices[indptr[v] : indptr[v + 1]]].tolist():
                if other != b:
                    row[other] = row.get(other, 0) + int(reads[v])
        columns += row
        weights += row.values()
        ends.append(len(columns))
    return np.array(ends, np.int64), np.array(columns, np.int32), np.array(weights, np.int64)


def refine_nodes(rows: slice, edges: Edges, symmetric: int, about: tuple, state: tuple) -> int:
    """Move some nodes to the part with which they share the most reads, if it has room; return how many moved.

    ``about``: reads and kind of every node; ``state``: capacity [4], load [parts, 4] and part [N], as in blocks.cpp.
    """
    (indptr, indices), (reads, kind), (capacity, load, part) = edges, about, state
    parts, moved = len(load), 0
    for v in range(rows.start, rows.stop):
        if kind[v] > 3:
            continue
        beside = indices[indptr[v] : indptr[v + 1]]
        near = np.zeros(parts, np.int64)
        np.add.at(near, part[beside], reads[v] + (reads[beside] if symmetric else 0))
        was = best = part[v]
        for p in range(parts):
            if near[p] > near[best] and load[p, 3] < capacity[3] and load[p, kind[v]] < capacity[kind[v]]:
                best = p
        if best != was:
            for column in {3, int(kind[v])}:
                load[was, column] -= 1
                load[best, column] += 1
            part[v] = best
            moved += 1
    return moved
