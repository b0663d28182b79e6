"""FastGCN and LADIES, literally: the nodes of a layer are drawn one after another, P̂ is dense."""

from __future__ import annotations

from collections import Counter

import numpy as np
from oracle.joint_batches import Batches, LiteralBatch, adjacency, propagation
from oracle.mini_batch_training import seeds_of
from oracle.saint import UNIT, chosen, column_weights, neighbours

from isthmus.graph.graph import Graph
from isthmus.kernels import stream


def layer_wise(
    graph: Graph, model: str, recipe: str, layer_nodes: int, size: int, seed: int, renormalised: bool = False
) -> Batches:
    """Return the batches of a recipe: seed nodes as in all mini-batches, ``layer_nodes`` drawn for each of 3 layers."""
    a, near, train = adjacency(graph), neighbours(graph), np.nonzero(graph.train_mask[:, 0])[0].tolist()
    one, everywhere = [len(of) + 1 for of in near], column_weights(near)

    def candidates(above: list[int]) -> dict[int, int]:
        """The nodes to draw from, ascending, with their weights."""
        if recipe == "fastgcn":
            return dict(enumerate(everywhere))
        found: dict[int, int] = {}
        for v in above:
            for u in near[v]:
                found[u] = found.get(u, 0) + max(UNIT // (one[v] * one[u]), 1)
        return dict(sorted(found.items()))

    def batch(step: int) -> LiteralBatch:
        seeds = seeds_of(train, size, seed, step)
        above, layers = list(seeds), []
        for hop in range(3):
            of = candidates(above)
            nodes, weights = list(of), list(of.values())
            times = dict.fromkeys(nodes, 1.0)
            if len(nodes) > layer_nodes:
                draws = Counter(chosen(stream(0x1AD1, seed, step, hop), layer_nodes, weights))
                times = {nodes[k]: c * sum(weights) / (layer_nodes * weights[k]) for k, c in draws.items()}
            counted = np.zeros_like(a)
            for v in above:
                read = [u for u in near[v] if u in times]
                most = len(near[v]) / sum(times[u] for u in read) if renormalised and read else 1.0
                for u in read:
                    counted[v, u] = a[v, u] * times[u] * most
            layers.insert(0, propagation(counted, a.sum(1), model))
            above += [u for u in sorted(times) if u not in above]
        counts = np.isin(np.arange(graph.num_nodes), seeds) / len(seeds)
        return LiteralBatch(layers, counts)

    return batch
