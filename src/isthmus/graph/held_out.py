"""Take some edges out of a graph, by which embeddings are judged, and as many pairs of nodes that are no edges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isthmus.errors import InputError
from isthmus.graph.graph import Graph

VAL, TEST = 1, 2


def hold_out(graph: Graph, share: float, seed: int = 0) -> Graph:
    """Return the graph without a share of its edges, which it holds out, half for validation and half for the test.

    An edge and its reverse leave together. Every held-out edge is given a random pair of nodes that is no edge.
    """
    rng, n = np.random.default_rng(seed), graph.num_nodes
    targets, sources = np.repeat(np.arange(n), np.diff(graph.indptr)), graph.indices.astype(np.int64)
    once = (targets > sources) if graph.symmetric else np.ones(len(sources), bool)
    edges = np.flatnonzero(once)
    chosen = np.sort(rng.permutation(edges)[: round(share * len(edges))])
    if len(chosen) < 2:
        raise InputError(f"--hold-out {share:g} of {len(edges):,} edges leaves none to judge by: give a larger share")
    keys = targets * n + sources  # ascending
    held = keys[chosen]
    gone = np.isin(keys, np.concatenate([held, sources[chosen] * n + targets[chosen]]) if graph.symmetric else held)
    strangers = _strangers(keys, n, len(chosen), rng)
    split = np.where(rng.permutation(len(chosen)) < len(chosen) // 2, VAL, TEST)
    pairs = [(keys // n, keys % n, np.full(len(keys), real), split) for keys, real in ((held, 1), (strangers, 0))]
    table = np.concatenate([np.stack(columns, axis=1) for columns in pairs]).astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(targets[~gone], minlength=n))]).astype(np.int64)
    attributes = None if graph.edge_attr is None else graph.edge_attr[~gone]
    told = f"{len(chosen):,} edges held out, half for validation and half for the test, and as many pairs without one"
    return replace(
        graph,
        indptr=indptr,
        indices=graph.indices[~gone],
        edge_attr=attributes,
        notes=(*graph.notes, told),
        held_out=table,
    )


def _strangers(keys: np.ndarray, nodes: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return pairs of different nodes that are no edges, target · N + source."""
    found = np.empty(0, np.int64)
    for _ in range(100):
        drawn = rng.integers(0, nodes, (2, 2 * count))
        drawn = (drawn[0] * nodes + drawn[1])[drawn[0] != drawn[1]]
        found = np.concatenate([found, drawn[~np.isin(drawn, keys)]])
        if len(found) >= count:
            return found[:count]
    raise InputError("nearly all pairs of nodes are edges: there are too few others to hold out")
