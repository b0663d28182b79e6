"""Unsupervised training, literally: one seed node, one walk and one negative at a time, dense matrices over all nodes.

A seed node v is compared with the end u of a walk from it and with Q nodes q that are not its neighbours:
loss = mean over seed nodes of -log σ(z_v · z_u) - Σ_q log σ(-z_v · z_q).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from oracle.mini_batch import draw, key, mini_batch
from oracle.mini_batch_training import propagation, seeds_of

from isthmus.graph.graph import Graph
from isthmus.kernels import stream

WALK, NEGATIVE, TRIES = 0x9051, 0x4E66, 8


def positive(adjacency: dict[int, list[int]], node: int, walk: int, seed: int, step: int) -> int:
    """Return where a walk from a node ends; it stays where there are no neighbours."""
    for hop in range(walk):
        node = next(iter(draw(adjacency[node], node, 1, stream(WALK, seed), step, hop, "uniform")), node)
    return node


def negatives(adjacency: dict[int, list[int]], node: int, count: int, by: str, seed: int, step: int) -> list[int]:
    """Return nodes that are neither the node nor its neighbours, each drawn again at most eight times."""
    found, of = [], [1] * len(adjacency)
    if by == "degree":
        of = [int(math.sqrt(len(near)) * math.sqrt(math.sqrt(len(near))) * 1024) for near in adjacency.values()]
    for q in range(count):
        for attempt in range(TRIES):
            unit = (key(stream(NEGATIVE, seed, step, attempt), node * count + q) >> 11) * 2.0**-53
            left, other = int(unit * sum(of)), 0
            while left >= of[other]:
                left, other = left - of[other], other + 1
            if other != node and other not in adjacency[node]:
                break
        found.append(other)
    return found


def losses(graph: Graph, model: str, weights: list[torch.Tensor], asked: dict, steps: int) -> list[float]:
    """Return the loss of every step of gradient descent; ``asked``: fanouts, size, seed, lr, walk, negatives, by."""
    adjacency = {
        v: sorted(graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()) for v in range(graph.num_nodes)
    }
    found, seed = [], asked["seed"]
    for step in range(steps):
        seeds = seeds_of(list(adjacency), asked["size"], seed, step)
        near = [positive(adjacency, v, asked["walk"], seed, step) for v in seeds]
        far = [negatives(adjacency, v, asked["negatives"], asked["by"], seed, step) for v in seeds]
        nodes = list(dict.fromkeys([*seeds, *near, *np.array(far).flatten().tolist()]))
        _, hops = mini_batch(adjacency, nodes, asked["fanouts"], seed, step, "uniform")
        weights = [w.detach().requires_grad_() for w in weights]
        h = torch.from_numpy(graph.x)
        for layer, edges in enumerate(reversed(hops)):
            p = propagation(graph, edges, model)
            h = h if layer == 0 else torch.relu(h)
            h = (p @ h if model == "gcn" else torch.cat([h, p @ h], dim=1)) @ weights[2 * layer].T
            h = h + weights[2 * layer + 1]
        loss = h.new_zeros(())
        for v, u, others in zip(seeds, near, far, strict=True):
            loss = loss - torch.log(torch.sigmoid(h[v] @ h[u]))
            for q in others:
                loss = loss - torch.log(torch.sigmoid(-(h[v] @ h[q])))
        loss = loss / len(seeds)
        found.append(float(loss.detach()))
        weights = [w - asked["lr"] * g for w, g in zip(weights, torch.autograd.grad(loss, weights), strict=True)]
    return found
