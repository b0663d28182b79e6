"""A mini-batch drawn literally: one node, one hop and one draw at a time, with Python's integers, in original ids."""

from __future__ import annotations

from isthmus.kernels import stream

SALT = 0x5A6E  # names the draws of the neighbour sampler among all draws of a run
MASK, GOLDEN = 2**64 - 1, 0x9E3779B97F4A7C15


def mix(h: int) -> int:
    h = ((h ^ (h >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    h = ((h ^ (h >> 27)) * 0x94D049BB133111EB) & MASK
    return h ^ (h >> 31)


def key(of: int, number: int) -> int:
    return mix((of + number * GOLDEN) & MASK)


def floyd(row_key: int, neighbours: list[int], size: int) -> list[int]:
    """Return ``size`` distinct neighbours by Floyd's algorithm; neighbours ascending by id."""
    if size >= len(neighbours):
        return list(neighbours)
    places: list[int] = []
    for draw, last in enumerate(range(len(neighbours) - size, len(neighbours))):
        place = key(row_key, draw) * (last + 1) >> 64
        places.append(last if place in places else place)
    return [neighbours[place] for place in places]


def draw(neighbours: list[int], node: int, size: int, seed: int, step: int, hop: int, method: str) -> list[int]:
    """Return what node gets at a hop of a step: a function of these numbers alone."""
    of_hop = stream(SALT, seed, step, hop, 0)
    if size < 0:
        return list(neighbours)
    if method == "labor":
        if len(neighbours) <= size:
            return list(neighbours)
        return [u for u in neighbours if (key(of_hop, u) >> 32) * len(neighbours) < size << 32]
    row_key = key(of_hop, node)
    if method == "replace":
        return [neighbours[key(row_key, i) * len(neighbours) >> 64] for i in range(size if neighbours else 0)]
    return floyd(row_key, neighbours, size)


def mini_batch(
    adjacency: dict[int, list[int]], seeds: list[int], fanouts: list[int], seed: int, step: int, method: str
) -> tuple[list[int], list[list[tuple[int, int]]]]:
    """Return the nodes of a batch in the order they are met, and the edges (source, target) of every hop."""
    nodes, hops = list(seeds), []
    for hop, size in enumerate(fanouts):
        frontier, edges = list(nodes), []
        for node in frontier:
            for neighbour in draw(adjacency[node], node, size, seed, step, hop, method):
                edges.append((neighbour, node))
                if neighbour not in nodes:
                    nodes.append(neighbour)
        hops.append(edges)
    return nodes, hops
