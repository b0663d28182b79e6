"""GraphSAINT, literally: one draw after another with Python's integers, chances by their formulas or by counting."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

import numpy as np
from oracle.joint_batches import Batches, LiteralBatch, adjacency, between, propagation
from oracle.mini_batch import key

from isthmus.graph.graph import Graph
from isthmus.kernels import stream

STEPS, BEFORE, UNIT = 0x5A17, 0x5A18, 1 << 20  # names of the draws of steps, and of those before; one as a weight


def below(of: int, number: int, limit: int) -> int:
    """Return a random whole number below a limit."""
    return min(int((key(of, number) >> 11) * 2.0**-53 * float(limit)), limit - 1)


def chosen(of: int, count: int, weights: list[int]) -> list[int]:
    """Draw things by their weights, with replacement."""
    sums = list(accumulate(weights))
    return [bisect_right(sums, below(of, i, sums[-1])) for i in range(count)]


def neighbours(graph: Graph) -> list[list[int]]:
    return [sorted(graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()) for v in range(graph.num_nodes)]


def column_weights(near: list[list[int]]) -> list[int]:
    """Return Σ_v P_vu² of GCN's P, self loops included, in units of 2^-20."""
    one = [len(of) + 1 for of in near]
    found = [max(UNIT // (d * d), 1) for d in one]
    for v, sources in enumerate(near):
        for u in sources:
            found[u] += max(UNIT // (one[v] * one[u]), 1)
    return found


def edges_of(near: list[list[int]]) -> tuple[list[tuple[int, int]], list[int]]:
    """Return the edges by target and source, with their weights; a node without any has an edge to itself."""
    degree = [max(len(of), 1) for of in near]
    edges = [(v, u) for v, sources in enumerate(near) for u in sources]
    weights = [UNIT // degree[v] + UNIT // degree[u] for v, u in edges]
    lonely = [v for v in range(len(near)) if not any(v in edge for edge in edges)]
    return edges + [(v, v) for v in lonely], weights + [2 * UNIT] * len(lonely)


def walk(near: list[list[int]], of: int, walker: int, length: int) -> list[int]:
    met = [below(stream(of, 0), walker, len(near))]
    for hop in range(1, length + 1):
        there = near[met[-1]]
        met.append(there[below(stream(of, hop), walker, len(there))] if there else met[-1])
    return met


def saint(graph: Graph, model: str, kind: str, size: int, seed: int, length: int = 2, coverage: float = 0) -> Batches:
    """Return the batches of a kind of subgraphs; ``coverage``: count chances instead of computing them."""
    a, near, train, n = adjacency(graph), neighbours(graph), graph.train_mask[:, 0], graph.num_nodes
    columns, (edges, weights) = column_weights(near), edges_of(near)

    def nodes_of(of: int) -> list[int]:
        if kind == "node":
            return sorted(set(chosen(of, size, columns)))
        if kind == "edge":
            return sorted({end for place in chosen(of, size, weights) for end in edges[place]})
        return sorted({v for walker in range(size) for v in walk(near, of, walker, length)})

    alone, both = np.zeros(n), np.zeros((n, n))  # the chances of nodes, and of pairs, to be there
    if coverage:
        drawn = met = 0
        while met < coverage * n:
            inside = np.isin(np.arange(n), nodes_of(stream(BEFORE, seed, drawn)))
            drawn, met = drawn + 1, met + inside.sum()
            alone, both = alone + inside, both + np.outer(inside, inside)
        alone, both = np.maximum(alone, 1) / drawn, np.maximum(both, 1) / drawn
    else:
        share, pair = np.zeros(n), np.zeros((n, n))
        if kind == "node":
            share = np.array(columns) / sum(columns)
        else:
            for (v, u), weight in zip(edges, weights, strict=True):
                share[v] += weight / sum(weights)
                share[u] += weight / sum(weights) * (u != v)
                pair[v, u] += weight / sum(weights)
                pair[u, v] += weight / sum(weights)
        alone = 1 - (1 - share) ** size
        neither = np.maximum(1 - share[:, None] - share[None] + pair, 0) ** size
        both = 1 - (1 - share[:, None]) ** size - (1 - share[None]) ** size + neither

    def batch(step: int) -> LiteralBatch:
        nodes = nodes_of(stream(STEPS, seed, step))
        counted = between(a, nodes) * np.divide(alone[:, None], both, out=np.zeros((n, n)), where=a != 0)
        counts = train * np.isin(np.arange(n), nodes) / alone / train.sum()
        return LiteralBatch([propagation(counted, a.sum(1), model)] * 3, counts)

    return batch
