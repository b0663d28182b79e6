"""Find where the nodes and edges of each part go: new numbers of nodes, and the mirrors that each part needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from isthmus.graph.graph import Graph
from isthmus.partition.adjacency import row_chunks, take_rows

READ, SUMMED = 1, 2
"""The legs of a mirror: it is the source of an edge here (scatter), the target of one (gather), or both."""


@dataclass(frozen=True)
class Relabelling:
    """The new numbers of the nodes, called global ids: part k owns ``ranges[k]:ranges[k+1]``."""

    old: np.ndarray  # int64 [N]: original id of every global id
    ranges: np.ndarray  # int64 [P+1]
    new: np.ndarray  # int32 [N]: global id of every original id

    @staticmethod
    def of(parts: list[np.ndarray]) -> Relabelling:
        """Number the nodes part by part; ``parts`` are the original ids of each, in the order inside the part."""
        old = np.concatenate(parts).astype(np.int64, copy=False)
        new = np.full(len(old), -1, np.int32)
        new[old] = np.arange(len(old), dtype=np.int32)
        if (new < 0).any():
            raise ValueError("parts must hold every node exactly once")
        return Relabelling(old, np.concatenate([[0], np.cumsum([len(p) for p in parts])]), new)

    @property
    def num_parts(self) -> int:
        return len(self.ranges) - 1


@dataclass(frozen=True)
class Layout:
    """The cut of a graph: the owner of every node and, under a vertex-cut, the part of every edge."""

    labels: Relabelling
    cut: str = "edge"
    edge_part: np.ndarray | None = None  # [E], in the order of graph.indices; None: the part of the edge's target


@dataclass(frozen=True)
class Border:
    """The mirrors of part k: nodes of others at its edges, ascending in global id and hence grouped by owner."""

    halo: np.ndarray  # int32 [h], global ids
    ptr: np.ndarray  # int64 [P+1]: the mirrors owned by q are halo[ptr[q]:ptr[q+1]]
    legs: np.ndarray  # uint8 [h]: READ, SUMMED or both
    inner_edges: int
    halo_edges: int
    mirror_edges: int = 0  # whose target is a mirror

    @staticmethod
    def of(legs: np.ndarray, ranges: np.ndarray, edges: tuple[int, int, int]) -> Border:
        """Make the border of the legs of every node of the graph (0: not a mirror here)."""
        halo = np.flatnonzero(legs).astype(np.int32)
        return Border(halo, np.searchsorted(halo, ranges).astype(np.int64), legs[halo], *edges)


def find_border(graph: Graph, layout: Layout, k: int) -> Border:
    """Return the mirrors of part k, and how many of its edges are inner→inner, mirror→inner, and into mirrors."""
    ranges = layout.labels.ranges
    legs = np.zeros(graph.num_nodes, np.uint8)
    counts = np.zeros(3, np.int64)
    everywhere = layout.edge_part is not None  # an edge may live with neither of its ends' owners
    nodes = np.arange(graph.num_nodes) if everywhere else layout.labels.old[ranges[k] : ranges[k + 1]]
    for first, _, rows, columns, _ in rows_of(graph, layout, nodes, k):
        row = layout.labels.new[nodes[first + rows]] if everywhere else np.full(1, ranges[k])
        outside = [(ids < ranges[k]) | (ids >= ranges[k + 1]) for ids in (columns, row)]
        legs[columns[outside[0]]] |= READ
        legs[row[outside[1]]] |= SUMMED
        halo = int(np.count_nonzero(outside[0] & ~outside[1]))
        mirror = int(np.count_nonzero(outside[1]))
        counts += len(columns) - halo - mirror, halo, mirror
    return Border.of(legs, ranges, (int(counts[0]), int(counts[1]), int(counts[2])))


def rows_of(
    graph: Graph, layout: Layout, nodes: np.ndarray, k: int
) -> Iterator[tuple[int, int, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the edges of part k into the given nodes, in chunks of rows.

    A chunk is the number of its first row, how many rows it has, and of each edge: row in the chunk, column (global
    id), position in the graph.
    """
    for chunk in row_chunks(graph.indptr[nodes + 1] - graph.indptr[nodes]):
        lengths, positions = take_rows(graph.indptr, nodes[chunk])
        rows = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        if layout.edge_part is not None:
            here = layout.edge_part[positions] == k
            rows, positions = rows[here], positions[here]
        yield chunk.start, len(lengths), rows, layout.labels.new[graph.indices[positions]], positions
