"""Small graphs for the tests of partition/."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import numpy as np

from isthmus.graph.graph import Graph
from isthmus.partition import METHODS

INSTALLED = [name for name in METHODS if name != "kaminpar" or find_spec("kaminpar")]
"""The methods that can be tried here: KaMinPar is an extra."""


def graph_of(pairs, nodes, *, directed=False, features=3, splits=1, seed=0, **changes) -> Graph:
    """Graph of (source, target) pairs; features, labels and masks are drawn. Undirected: each pair stands for both."""
    source, target = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    if not directed:
        source, target = np.concatenate([source, target]), np.concatenate([target, source])
    keys = np.unique(target[source != target] * nodes + source[source != target])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(keys // nodes, minlength=nodes))])
    rng = np.random.default_rng(seed)
    role = rng.integers(0, 4, (nodes, splits))
    graph = Graph(
        indptr=indptr,
        indices=(keys % nodes).astype(np.int32),
        x=rng.standard_normal((nodes, features)).astype(np.float32),
        y=rng.integers(0, 3, nodes),
        train_mask=role == 1,
        val_mask=role == 2,
        test_mask=role == 3,
        num_classes=3,
        symmetric=not directed,
    )
    return replace(graph, **changes)


def communities(nodes=400, groups=8, degree=10, inside=0.9, *, directed=False, seed=0, **changes) -> Graph:
    """Groups of equal size with most edges inside; ids shuffled, so that the given order helps nobody."""
    rng = np.random.default_rng(seed)
    edges = nodes * degree // 2
    size = nodes // groups
    source = rng.integers(0, groups * size, edges)
    near = source // size * size + rng.integers(0, size, edges)
    target = np.where(rng.random(edges) < inside, near, rng.integers(0, groups * size, edges))
    shuffle = rng.permutation(nodes)
    return graph_of(np.stack([shuffle[source], shuffle[target]], 1), nodes, directed=directed, seed=seed, **changes)


def edges_of(graph: Graph) -> np.ndarray:
    """(source, target) of every edge, [E, 2], in the order of ``graph.indices``."""
    return np.stack([graph.indices, np.repeat(np.arange(graph.num_nodes), graph.degree)], 1)
