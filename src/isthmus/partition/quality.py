"""Measure how good a partition is: what is cut, what must be sent, how evenly the work is shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from isthmus.partition.border import READ, SUMMED, Border
from isthmus.partition.part import PartInfo


class Figures(TypedDict):
    """The figures that every book has; lists have one entry per part."""

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


class Quality(Figures, total=False):
    """The figures that `quality` returns; books that were written before there were several cuts have fewer."""

    replication: float
    scatter_rows: list[int]
    gather_rows: list[int]
    scatter_edges: list[int]
    gather_edges: list[int]


class Messages(TypedDict):
    """The rows that every part sends in one exchange, both legs: CDFGNN's table 3 prints their maxima."""

    hosts: int
    inner_messages: list[int]
    outer_messages: list[int]
    outer_rows: int
    by_leg: dict[str, dict[str, list[int]]]


@dataclass(frozen=True)
class Legs:
    """The rows that part q sends to part k in one exchange of the forward pass, int64 [P, P], by leg."""

    scatter: np.ndarray
    gather: np.ndarray
    lent: np.ndarray  # edges into k that q sums, in a cover cut

    @staticmethod
    def of(borders: Sequence[Border]) -> Legs:
        """Count the legs of mirrors: owners scatter rows to those that are read, those that are summed go home."""
        scatter, gather = (np.zeros((len(borders), len(borders)), np.int64) for _ in range(2))
        for k, border in enumerate(borders):
            owner = np.repeat(np.arange(len(borders)), np.diff(border.ptr))
            scatter[:, k] = np.bincount(owner[border.legs & READ != 0], minlength=len(borders))
            gather[k] = np.bincount(owner[border.legs & SUMMED != 0], minlength=len(borders))
        return Legs(scatter, gather, np.zeros_like(scatter))

    @property
    def both(self) -> np.ndarray:
        return self.scatter + self.gather


def quality(parts: Sequence[PartInfo], legs: Legs, splits: Mapping[str, np.ndarray]) -> Quality:
    """Return the figures for book.json, from the rows of both legs and the nodes in train, val, test of parts [P, S].

    - cut_edges: edges j → i with an end that belongs to another part; cut_share: of all edges
    - volume: the rows that cross links in one exchange, of both legs; under an edge-cut all halo rows, which is
      Σ_v |parts other than v's that read v|
    - halo_per_inner: per part, "ratio of boundary to inner" in BNS-GCN table 1, whose boundary nodes are our halo nodes
    - boundary_share: per part, the share of inner nodes that others mirror
    - balance: max/mean over parts of nodes, edges (those that a part sums), train, val, test (of several splits, the
      worst), replicas (inner nodes and mirrors: the vertex imbalance factor)
    - bytes: per part, on disk; receive_bytes_per_column, send_bytes_per_column: in one exchange of one fp32 column
    - replication: Σ_k |inner nodes and mirrors of k| / |nodes|, the replication factor
    - scatter_rows, gather_rows: per part, rows sent in each leg of the forward pass; the backward pass exchanges them
    - scatter_edges: per part, edges to its own nodes from rows that others send; gather_edges: edges that it sums for
      others, whose sums it sends
    """
    inner, halo = np.array([p.inner for p in parts]), np.array([p.halo for p in parts])
    cut = np.array([p.halo_edges + p.mirror_edges for p in parts])
    edges = cut + np.array([p.inner_edges for p in parts])
    held = halo if any(p.mirror_edges for p in parts) else legs.scatter.sum(axis=0)  # a cover needs not all of the halo
    summed = edges + legs.lent.sum(axis=1) - legs.lent.sum(axis=0)
    return {
        "cut_edges": int(cut.sum()),
        "cut_share": float(cut.sum() / max(1, edges.sum())),
        "volume": int(legs.both.sum()),
        "halo_per_inner": (halo / inner).tolist(),
        "boundary_share": [p.boundary / p.inner for p in parts],
        "balance": {
            "nodes": _imbalance(inner),
            "edges": _imbalance(summed),
            **{name: max(_imbalance(column) for column in counts.T) for name, counts in splits.items()},
            "replicas": _imbalance(inner + held),
        },
        "splits": {name: counts.tolist() for name, counts in splits.items()},
        "bytes": [p.bytes for p in parts],
        "receive_bytes_per_column": (4 * legs.both.sum(axis=0)).tolist(),
        "send_bytes_per_column": (4 * legs.both.sum(axis=1)).tolist(),
        "replication": float((inner + held).sum() / inner.sum()),
        "scatter_rows": legs.scatter.sum(axis=1).tolist(),
        "gather_rows": legs.gather.sum(axis=1).tolist(),
        "scatter_edges": (np.array([p.halo_edges for p in parts]) - legs.lent.sum(axis=0)).tolist(),
        "gather_edges": (np.array([p.mirror_edges for p in parts]) + legs.lent.sum(axis=1)).tolist(),
    }


def _imbalance(load: np.ndarray) -> float:
    """Return max/mean, where 1 is perfect; a load that is zero everywhere is balanced."""
    return float(load.max() / load.mean()) if load.any() else 1.0
