"""Unchecked arrays as a reader found them, and ``assemble``, which checks them once and makes the Graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.errors import InputError
from isthmus.graph import check, csr
from isthmus.graph.graph import Graph, SparseRows
from isthmus.graph.options import LoadOptions


@dataclass(frozen=True)
class RawGraph:
    """Unchecked input. Shapes: N nodes, E edges as given, F features, C classes, S splits."""

    src: np.ndarray  # [E]
    dst: np.ndarray  # [E]
    x: np.ndarray | SparseRows  # [N, F]
    y: np.ndarray  # [N], [N, 1] or [N, C]
    train_mask: np.ndarray  # [N] or [N, S]
    val_mask: np.ndarray
    test_mask: np.ndarray
    name: str
    num_nodes: int | None = None
    num_classes: int | None = None
    edge_attr: np.ndarray | None = None  # [E] or [E, D]
    node_type: np.ndarray | None = None  # [N]
    notes: tuple[str, ...] = ()
    ids: np.ndarray | None = None  # [N] integers or words, all different


def no_features(y: np.ndarray) -> np.ndarray:
    """Return the rows of a graph without features, [N, 0]."""
    return np.empty((len(y) if y.ndim else 0, 0), np.float32)


def attributes(edge_attr: Any, edge_weight: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the attributes of edges, which are ``edge_weight`` where there is no ``edge_attr``; and notes."""
    if edge_attr is None or edge_weight is None:
        return edge_weight if edge_attr is None else edge_attr, ()
    return edge_attr, ("edge_weight is not read, since there is edge_attr",)


def assemble(raw: RawGraph, how: LoadOptions | None = None) -> Graph:
    """Check all arrays, sort the edges into CSR form and return the Graph; ``Graph.notes`` lists every correction."""
    how = how or LoadOptions()
    undirected, directed = how.undirected, how.directed
    with check.named(raw.name):
        x = check.rows(raw.x)
        n = check.count(raw.num_nodes, x.shape[0])
        y, num_classes, notes = _labels(raw, n, how.task)
        train, val, test = check.masks(raw.train_mask, raw.val_mask, raw.test_mask, y)
        src, dst = check.edges(raw.src, raw.dst, n)
        edge_attr = check.edge_attr(raw.edge_attr, len(src))
        node_type = check.node_type(raw.node_type, n)
        weighted = edge_attr is not None
        if not weighted and how.multi_edges == "sum":
            edge_attr = np.ones(len(src), np.float32)

        keys = csr.pack(src, dst)
        given = len(keys)
        if undirected:
            keys = csr.with_reverses(keys)
        if how.multi_edges == "keep":
            structure, parallel = csr.to_multi_csr(keys, n, given)
            notes.append(f"{parallel // (1 + undirected):,} parallel edges kept, each an edge of its own")
        else:
            structure = csr.to_csr(keys, n, keep_order=edge_attr is not None, keep_all=how.multi_edges != "first")
        del keys
        if not (structure.symmetric or directed):
            raise InputError(check.one_directional(*csr.missing_reverses(structure)))
        if undirected:
            notes.append(f"reverses added: {given:,} edges given, {len(structure.indices):,} in both directions")
        if structure.duplicates:
            # Every edge has its reverse by now, so each duplicate is counted twice.
            own = "" if edge_attr is None else ", but each keeps the attributes that were given for it"
            also = f" (an edge and its reverse are the same{own})" if undirected else ""
            notes.append(f"{structure.duplicates // (1 + undirected):,} duplicate edges merged{also}")
        if edge_attr is not None and structure.parallel is not None and how.multi_edges == "first":
            notes += _lost_attributes(edge_attr, src, dst, structure.parallel)
        if structure.self_loops:
            notes.append(f"{structure.self_loops // (1 + undirected):,} self loops dropped (gcn and gat add their own)")
    if edge_attr is not None:
        assert structure.order is not None
        if structure.runs is not None and structure.duplicates:
            edge_attr, merged = _merged(edge_attr, given, structure.runs, how.multi_edges)
            notes.append(f"weights of {merged:,} parallel edges: the {how.multi_edges} of them, in either direction")
        else:
            edge_attr = edge_attr[structure.order % given]  # a reverse has the attributes of its edge
    return Graph(
        structure.indptr, structure.indices, x, y, train, val, test, num_classes, raw.name, structure.symmetric,
        edge_attr, node_type, tuple(notes), raw.ids,
    )  # fmt: skip


def _labels(raw: RawGraph, n: int, task: str | None) -> tuple[np.ndarray, int, list[str]]:
    """Return labels or targets, their number, and notes with what is to be said about them."""
    notes, y = list(raw.notes), raw.y
    if y.dtype.kind == "f" and (unknown := int(np.isnan(y).sum())):
        notes.append(f"{unknown:,} label(s) are NaN: these nodes count as unlabelled")
    if check.is_regression(y, task):
        values = check.values(y, n)
        why = "" if task else " (y has values that are no whole numbers)"
        notes.append(f"regression of {values.shape[1]} value(s) per node{why}")
        return values, values.shape[1], notes
    labels, num_classes = check.labels(y, n, raw.num_classes)
    if raw.num_classes is None and (gap := check.empty_classes(labels, num_classes)):
        notes.append(gap)
    return labels, num_classes, notes


def _merged(attr: np.ndarray, given: int, runs: tuple[np.ndarray, np.ndarray], rule: str) -> tuple[np.ndarray, int]:
    """Return the attributes of distinct edges, and how many edges were put together.

    ``runs``: positions of all edges, equal ones next to each other, and where each run begins. Edges that were given
    take precedence over added reverses, so an edge that is given both ways does not count twice.
    """
    order, starts = runs
    lengths = np.diff(np.append(starts, len(order)))
    own = (order < given) == np.repeat(order[starts] < given, lengths)
    counts = np.add.reduceat(own.astype(np.int64), starts)
    starts = np.cumsum(counts) - counts
    values = attr[order[own] % given]
    merged = (np.maximum if rule == "max" else np.add).reduceat(values, starts)
    if rule == "mean":
        merged = (merged / counts.reshape(-1, *[1] * (attr.ndim - 1))).astype(attr.dtype)
    return merged, int(counts[counts > 1].sum())


def _lost_attributes(
    attr: np.ndarray, src: np.ndarray, dst: np.ndarray, parallel: tuple[np.ndarray, np.ndarray]
) -> list[str]:
    """Say how many merged edges had other attributes than the edge that was kept."""
    before, after = parallel
    given = after < len(attr)  # later ones were added as reverses, and an edge that was given takes precedence
    differs = attr[before[given]] != attr[after[given]]
    lost = after[given][differs.any(axis=1) if attr.ndim == 2 else differs]
    if not len(lost):
        return []
    first = f"{int(src[lost[0]])} → {int(dst[lost[0]])}"
    return [
        f"{len(lost):,} of them had other attributes than the same edge before them (first: {first}): those of the "
        "first stay; add weights up beforehand if they are meant to count together"
    ]
