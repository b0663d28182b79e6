"""One part of a graph: its arrays, and the entry about it in the book."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from isthmus.files.array_file import FileEntry
from isthmus.graph.graph import SparseRows


@dataclass(frozen=True)
class PartInfo:
    """The entry of one part in the book."""

    inner: int
    halo: int
    inner_edges: int
    halo_edges: int
    boundary: int  # inner nodes that another part mirrors
    files: Mapping[str, FileEntry]
    mirror_edges: int = 0  # whose target is a mirror, in a vertex-cut

    @property
    def edges(self) -> int:
        return self.inner_edges + self.halo_edges + self.mirror_edges

    @property
    def bytes(self) -> int:
        return sum(entry["bytes"] for entry in self.files.values())


@dataclass(frozen=True)
class Part:
    """One part, memory-mapped: n inner nodes, h halo nodes, P parts, S splits. Local ids number inner nodes from 0.

    Under a vertex-cut the inner nodes are the masters, the halo nodes all mirrors, and edges may end in mirrors.
    A join of several parts (`partition.join`), for a worker that trains them all, has P workers instead of parts.
    """

    index: int
    nodes: np.ndarray  # int64 [n], original ids
    halo_nodes: np.ndarray  # int64 [h], original ids, grouped by owner
    halo_ptr: np.ndarray  # int64 [P+1]: halo rows owned by q
    halo_rows: np.ndarray  # int32 [h]: the owner's local ids of the halo nodes
    send_rows: np.ndarray  # int32 [s]: local ids that q reads, in the order of q's halo group
    send_ptr: np.ndarray  # int64 [P+1]
    degree: np.ndarray  # int64 [n], in-degree in the whole graph
    halo_degree: np.ndarray  # int64 [h]
    inner_indptr: np.ndarray  # int64 [n+1], edges inner → inner
    inner_indices: np.ndarray  # int32
    halo_indptr: np.ndarray  # int64 [n+1], edges halo → inner
    halo_indices: np.ndarray  # int32, positions in the halo list
    x: np.ndarray | SparseRows  # [n, F]
    y: np.ndarray  # int64 [n] or uint8 [n, C]
    train_mask: np.ndarray  # bool [n, S]
    val_mask: np.ndarray
    test_mask: np.ndarray
    inner_edge_attr: np.ndarray | None = None
    halo_edge_attr: np.ndarray | None = None
    node_type: np.ndarray | None = None
    cover: np.ndarray | None = None  # bool [h], cover cut: scattered; the edges of the other halo nodes are lent
    halo_legs: np.ndarray | None = None  # uint8 [h], vertex-cut: 1 read here (scatter), 2 summed here (gather), 3 both
    send_legs: np.ndarray | None = None  # uint8 [s]: the same of the mirrors of send_rows
    mirror_indptr: np.ndarray | None = None  # int64 [h+1], vertex-cut: edges into mirrors
    mirror_indices: np.ndarray | None = None  # int32, local ids; from n on: mirrors
    mirror_edge_attr: np.ndarray | None = None
    ids: np.ndarray | None = None  # [n] integers or words: the source's names of the inner nodes
    held_out: np.ndarray | None = (
        None  # int64 [m, 4]: target (inner) and source in global ids, 1 edge or 0, 1 val or 2 test
    )
