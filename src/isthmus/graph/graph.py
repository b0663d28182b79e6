"""The whole graph, in memory or memory-mapped: structure, feature rows, labels, splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class SparseRows:
    """Feature rows in CSR form: row i has ``data[indptr[i]:indptr[i+1]]`` in columns ``indices[...]``."""

    indptr: np.ndarray  # int64 [N+1]
    indices: np.ndarray  # int32 [nnz]
    data: np.ndarray  # float [nnz]
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, self.width

    @property
    def dtype(self) -> np.dtype:
        return self.data.dtype

    def take(self, rows: np.ndarray) -> SparseRows:
        """Return the given rows, in the given order."""
        length = np.diff(self.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(length)])
        flat = np.arange(indptr[-1]) + np.repeat(self.indptr[rows] - indptr[:-1], length)
        return SparseRows(indptr, self.indices[flat], self.data[flat], self.width)

    @staticmethod
    def stack(blocks: Sequence[SparseRows]) -> SparseRows:
        """Return the rows of all blocks, one block after the other."""
        ends = np.cumsum([0, *(block.indptr[-1] for block in blocks)])
        indptr = np.concatenate([[0], *(block.indptr[1:] + end for block, end in zip(blocks, ends[:-1], strict=True))])
        indices, data = (np.concatenate([getattr(block, name) for block in blocks]) for name in ("indices", "data"))
        return SparseRows(indptr, indices, data, blocks[0].width)


@dataclass(frozen=True)
class Graph:
    """A graph in CSR form: row i lists the sources j of the edges j → i, ascending, without self loops or duplicates.

    Shapes: N nodes, E directed edges, F features, C classes, S splits.
    """

    indptr: np.ndarray  # int64 [N+1]
    indices: np.ndarray  # int32 where N fits, else int64 [E]
    x: np.ndarray | SparseRows  # float [N, F]
    y: np.ndarray  # int64 [N], -1 = unlabelled; uint8 [N, C], multi-label; or float [N, C], values, NaN = unlabelled
    train_mask: np.ndarray  # bool [N, S]
    val_mask: np.ndarray  # bool [N, S]
    test_mask: np.ndarray  # bool [N, S]
    num_classes: int
    name: str = "graph"
    symmetric: bool = True  # every edge exists in both directions
    edge_attr: np.ndarray | None = None  # [E] or [E, D], in the order of `indices`
    node_type: np.ndarray | None = None  # int [N]
    notes: tuple[str, ...] = field(default=())  # what the reader corrected, for the user to see
    ids: np.ndarray | None = None  # [N] integers or words, the names of the nodes in the source; None: 0 … N − 1
    held_out: np.ndarray | None = (
        None  # int64 [m, 4]: target, source, 1 for an edge that was taken out, 1 val or 2 test
    )

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        return int(self.indptr[-1])

    @property
    def num_features(self) -> int:
        return self.x.shape[1]

    @property
    def num_splits(self) -> int:
        return self.train_mask.shape[1]

    @property
    def multilabel(self) -> bool:
        return self.y.ndim == 2 and not self.regression

    @property
    def regression(self) -> bool:
        """Whether y are values to predict, one column per target, not classes."""
        return self.y.dtype.kind == "f"

    def __repr__(self) -> str:
        size = f"{self.num_nodes:,} nodes, {self.num_edges:,} edges, {self.num_features:,} features"
        return f"Graph({self.name}: {size}, {self.num_classes} {'target(s)' if self.regression else 'classes'})"

    @property
    def degree(self) -> np.ndarray:
        """The in-degree of every node, int64 [N]."""
        return np.diff(self.indptr)
