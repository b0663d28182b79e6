"""VR-GCN, literally: dense matrices over all nodes, one process, one step after another.

Layer l computes Z^l = P̂ (H^{l-1} - H̄^{l-1}) + P H̄^{l-1}, H̄ the rows that nodes had when they were last computed, zero
before; H̄^0 = X. Only neighbours are drawn: a node's own row is always that of the step.
"""

from __future__ import annotations

import numpy as np
import torch
from oracle.mini_batch import mini_batch
from oracle.mini_batch_training import propagation, seeds_of

from isthmus.graph.graph import Graph


def losses(
    graph: Graph, model: str, weights: list[torch.Tensor], neighbours: int, size: int, seed: int, steps: int, lr: float
) -> list[float]:
    """Return the loss of every step of gradient descent; weights as in `oracle.full_graph`."""
    adjacency = {
        v: sorted(graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()) for v in range(graph.num_nodes)
    }
    every = propagation(graph, [(u, v) for v, near in adjacency.items() for u in near], model)
    x, y, layers = torch.from_numpy(graph.x), torch.from_numpy(graph.y), len(weights) // 2
    train, found = np.nonzero(graph.train_mask[:, 0])[0].tolist(), []
    history: list[torch.Tensor] = [x] + [x.new_zeros(0)] * (layers - 1)
    for step in range(steps):
        seeds = seeds_of(train, size, seed, step)
        _, hops = mini_batch(adjacency, seeds, [neighbours] * layers, seed, step, "uniform")
        weights = [w.detach().requires_grad_() for w in weights]
        h, made = x, []
        for layer, edges in enumerate(reversed(hops)):
            if layer:
                h = torch.relu(h)
                computed = sorted({v for below in hops[: layers - layer] for edge in below for v in edge} | set(seeds))
                made.append((layer, computed, h.detach()))
                if not len(history[layer]):
                    history[layer] = torch.zeros_like(h)
            drawn = propagation(graph, edges, model)
            z = drawn @ h + (every - drawn) @ history[layer]
            h = (z if model == "gcn" else torch.cat([h, z], dim=1)) @ weights[2 * layer].T + weights[2 * layer + 1]
        loss = torch.nn.functional.cross_entropy(h[seeds], y[seeds])
        found.append(float(loss.detach()))
        for layer, computed, rows in made:
            history[layer][computed] = rows[computed]
        weights = [w - lr * g for w, g in zip(weights, torch.autograd.grad(loss, weights), strict=True)]
    return found
