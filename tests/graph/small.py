"""A six-node graph by hand, and ways to write it down."""

from __future__ import annotations

from typing import Any

import numpy as np

# 0-1-2-3-4-5 in a line, and 0-5
PAIRS = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)]


def fields(**changes: Any) -> dict[str, Any]:
    """The arrays of the documented .npz form; ``changes`` replace some, None takes one out."""
    edges = np.array(PAIRS + [(b, a) for a, b in PAIRS]).T
    arrays: dict[str, Any] = {
        "edge_index": edges,
        "x": np.arange(12, dtype=np.float32).reshape(6, 2),
        "y": np.array([0, 1, 2, 0, 1, -1]),
        "train_mask": np.array([1, 1, 0, 0, 0, 0], bool),
        "val_mask": np.array([0, 0, 1, 0, 0, 0], bool),
        "test_mask": np.array([0, 0, 0, 1, 1, 0], bool),
    }
    arrays.update(changes)
    return {name: array for name, array in arrays.items() if array is not None}


def neighbours(graph: Any) -> list[list[int]]:
    """The sources of every row."""
    return [graph.indices[a:b].tolist() for a, b in zip(graph.indptr[:-1], graph.indptr[1:], strict=True)]


RING = [[1, 5], [0, 2], [1, 3], [2, 4], [3, 5], [0, 4]]
