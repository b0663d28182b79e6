"""The vertex-cuts in plain Python: what the native core computes, edge for edge, and what runs without it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from isthmus.graph.graph import Graph

LAMBDA = 1024  # the weight of HDRF's balance, in 1/1024
_ONE = 1 << 20  # HDRF's unit of scores


def placed_edges(graph: Graph) -> Iterator[tuple[int, int, int]]:
    """Yield (number, row, column) of every edge that is placed: of a symmetric graph one of each pair."""
    for row in range(graph.num_nodes):
        for e in range(graph.indptr[row], graph.indptr[row + 1]):
            if not graph.symmetric or graph.indices[e] < row:
                yield e, row, int(graph.indices[e])


def ebv(
    graph: Graph, host: np.ndarray, messages: bool, costs: np.ndarray, degree: np.ndarray, part: np.ndarray
) -> np.ndarray:
    parts = len(host)
    new_replica, new_far, of_edge, of_node = costs.tolist()
    here: dict[int, set[int]] = defaultdict(set)
    load = [0] * parts

    def cost(node: int, p: int) -> int:
        """Return the cost of a replica in p, if it is new."""
        count = Counter(int(host[q]) for q in here[node])
        far = count[int(host[p])] < max(count.values(), default=0) if messages else not count[int(host[p])]
        return 0 if p in here[node] else new_replica + new_far * far

    for e, u, v in sorted(placed_edges(graph), key=lambda edge: degree[edge[1]] + degree[edge[2]]):

        def score(p: int, u: int = u, v: int = v) -> int:
            return load[p] + cost(u, p) + cost(v, p)

        best = min(range(parts), key=score)  # the first of several
        load[best] += of_edge + of_node * ((best not in here[u]) + (best not in here[v]))
        here[u].add(best)
        here[v].add(best)
        part[e] = best
    return part


def hdrf(
    graph: Graph,
    parts: int,
    capacity: int,
    degree: np.ndarray,
    state: tuple[np.ndarray, np.ndarray, np.ndarray],
    high: np.ndarray | None,
) -> np.ndarray:
    """Place edges by HDRF; ``state``: part [E], size [P] and the replica sets so far."""
    part, size, sets = state
    for e, u, v in placed_edges(graph):
        if high is not None and not (high[u] and high[v]):
            continue
        of_u = _ONE + _ONE * int(degree[v]) // int(degree[u] + degree[v])
        spread = int(size.max() - size.min())
        unit = (_ONE << 10) // (1 + spread) * LAMBDA

        def score(p: int, u: int = u, v: int = v, of_u: int = of_u, unit: int = unit) -> int:
            held = in_part(sets, u, p) * of_u + in_part(sets, v, p) * (3 * _ONE - of_u)
            return held + (int(size.max() - size[p]) * unit >> 20)

        best = max((p for p in range(parts) if size[p] < capacity), key=score)  # the first of several
        size[best] += 1
        add_to_part(sets, u, best)
        add_to_part(sets, v, best)
        part[e] = best
    return part


class Expansion:
    """Grow parts one after the other; see `partition.vertex.expansion`."""

    def __init__(self, graph: Graph, high: np.ndarray, part: np.ndarray):
        self.high, self.part = high, part
        self.around: list[list[tuple[int, int]]] = [[] for _ in range(graph.num_nodes)]  # (neighbour, edge)
        for e, u, v in placed_edges(graph):
            self.around[u].append((v, e))
            self.around[v].append((u, e))

    def grow(self, k: int, room: int, order: np.ndarray) -> None:
        """Give part k up to ``room`` edges; ``order`` are the nodes as they may be starts."""
        self.k, self.room, self.clock = k, room, 0
        self.inside = {int(v) for v in np.flatnonzero(self.high)}
        self.waiting: dict[int, tuple[int, int]] = {}  # node → (neighbours outside, minus the time of its last change)
        while self.room > 0:
            if self.waiting:
                v = min(self.waiting, key=self.waiting.__getitem__)
                del self.waiting[v]
            else:
                starts = (int(v) for v in order if not self.high[v] and self.open_edges(int(v)))
                v = next(starts, -1)
                if v < 0:
                    return
                if v not in self.inside:
                    self.join(v, waits=False)
            for w, e in self.around[v]:
                if self.room > 0 and self.part[e] < 0 and w not in self.inside:
                    self.join(w, waits=True)

    def open_edges(self, v: int) -> list[tuple[int, int]]:
        return [(w, e) for w, e in self.around[v] if self.part[e] < 0]

    def join(self, v: int, waits: bool) -> None:
        """Let a node join: its edges to nodes inside are placed, the others count how far outside it lies."""
        self.inside.add(v)
        outside = 0
        for w, e in self.open_edges(v):
            self.clock += 1
            if w not in self.inside:
                outside += 1
            elif self.room > 0:
                self.part[e], self.room = self.k, self.room - 1
                left = self.waiting.pop(w, (0, 0))[0] - 1
                if left > 0:
                    self.waiting[w] = left, -self.clock
        if waits and outside:
            self.waiting[v] = outside, -self.clock - 1
            self.clock += 1


def place_reverses(graph: Graph, part: np.ndarray) -> None:
    """Give the other direction of each edge of a symmetric graph the part of the placed one."""
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    upper = np.flatnonzero(graph.indices > rows)
    order = np.lexsort((rows[upper], graph.indices[upper]))  # as the placed ones lie: by row, then column
    part[upper[order]] = part[graph.indices < rows]


def masters(graph: Graph, parts: int, part: np.ndarray, host: Sequence[int] | None = None) -> np.ndarray:
    """Choose the owner of every node among the parts that hold an edge of it, int32 [N]."""
    sets = np.zeros((graph.num_nodes, -(-parts // 64)), np.uint64)
    mark_replicas(graph, part, sets)
    held = [[p for p in range(parts) if in_part(sets, v, p)] for v in range(graph.num_nodes)]
    sent, owned = [0] * parts, [0] * parts
    owner = np.zeros(graph.num_nodes, np.int32)
    for wanted in (1, 2, 0):
        for v, of_node in enumerate(held):
            if min(len(of_node), 2) != wanted:
                continue
            load = sent if wanted else owned
            near = of_node or range(parts)
            if host is not None and of_node:
                count = Counter(host[p] for p in of_node)
                near = [p for p in of_node if count[host[p]] == max(count.values())]
            best = min(near, key=lambda p: (load[p], owned[p], p))
            owner[v] = best
            owned[best] += 1
            if wanted == 2:
                for p in of_node:
                    sent[p] += 1
                sent[best] += len(of_node) - 2
    return owner


def mark_replicas(graph: Graph, part: np.ndarray, sets: np.ndarray) -> None:
    """Add the parts of its placed edges to the set of each node."""
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    placed = part >= 0
    of = part[placed].astype(np.int64)
    for nodes in (rows[placed], graph.indices[placed]):
        np.bitwise_or.at(sets, (nodes, of // 64), np.left_shift(np.uint64(1), (of % 64).astype(np.uint64)))


def in_part(sets: np.ndarray, node: int, part: int) -> bool:
    return bool(int(sets[node, part // 64]) >> part % 64 & 1)


def add_to_part(sets: np.ndarray, node: int, part: int) -> None:
    sets[node, part // 64] |= np.uint64(1 << part % 64)
