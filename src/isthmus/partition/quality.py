"""Measure how good a partition is: what is cut, what must be sent, how evenly the work is shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np

from isthmus.partition.part import PartInfo


class Quality(TypedDict):
    """The figures that `quality` returns; lists have one entry per part."""

    cut_edges: int
    cut_share: float
    volume: int
    halo_per_inner: list[float]
    boundary_share: list[float]
    balance: dict[str, float]
    splits: dict[str, list[list[int]]]
    bytes: list[int]
    receive_bytes_per_column: list[int]
    send_bytes_per_column: list[int]


def quality(parts: Sequence[PartInfo], sent: np.ndarray, splits: Mapping[str, np.ndarray]) -> Quality:
    """Return the figures for book.json, from rows sent by each part [P] and its nodes in train, val, test [P, S].

    - cut_edges: edges j → i whose ends lie in different parts; cut_share: of all edges
    - volume: Σ_v |parts other than v's that read v|, the rows that cross links in one exchange; = all halo rows
    - halo_per_inner: per part, "ratio of boundary to inner" in BNS-GCN table 1, whose boundary nodes are our halo nodes
    - boundary_share: per part, the share of inner nodes that others read
    - balance: max/mean over parts of nodes, edges, train, val, test (of several splits, the worst)
    - bytes: per part, on disk; receive_bytes_per_column, send_bytes_per_column: in one exchange of one fp32 column
    """
    inner, halo = np.array([p.inner for p in parts]), np.array([p.halo for p in parts])
    cut = np.array([p.halo_edges for p in parts])
    edges = cut + np.array([p.inner_edges for p in parts])
    return {
        "cut_edges": int(cut.sum()),
        "cut_share": float(cut.sum() / max(1, edges.sum())),
        "volume": int(halo.sum()),
        "halo_per_inner": (halo / inner).tolist(),
        "boundary_share": [p.boundary / p.inner for p in parts],
        "balance": {
            "nodes": _imbalance(inner),
            "edges": _imbalance(edges),
            **{name: max(_imbalance(column) for column in counts.T) for name, counts in splits.items()},
        },
        "splits": {name: counts.tolist() for name, counts in splits.items()},
        "bytes": [p.bytes for p in parts],
        "receive_bytes_per_column": (4 * halo).tolist(),
        "send_bytes_per_column": (4 * sent).tolist(),
    }


def _imbalance(load: np.ndarray) -> float:
    """Return max/mean, where 1 is perfect; a load that is zero everywhere is balanced."""
    return float(load.max() / load.mean()) if load.any() else 1.0
