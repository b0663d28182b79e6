"""Training by mini-batches, literally: dense matrices over all nodes, one process, one step after another.

Layer l reads the edges drawn at hop L - 1 - l, each counted degree / number drawn times its weight (1 without any):
Z^l = P̂^l H^{l-1} W^l (+ H^{l-1} W_self^l for SAGE) + b^l, H^l = relu(Z^l); loss = mean over the seed nodes.
"""

from __future__ import annotations

import numpy as np
import torch
from oracle.learnt_rows import LearntRows
from oracle.mini_batch import key, mini_batch

from isthmus.graph.graph import Graph
from isthmus.kernels import stream

SALT = 0x5EED  # names the order of the seed nodes among all draws of a run


def signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def seeds_of(train: list[int], size: int, seed: int, step: int) -> list[int]:
    """Return the seed nodes of a step: training nodes ascend by a random number, anew in every epoch."""
    epoch, within = divmod(step, -(-len(train) // size))
    order = sorted(train, key=lambda node: signed(key(stream(SALT, seed, epoch), node)))
    return order[within * size : (within + 1) * size]


def propagation(graph: Graph, edges: list[tuple[int, int]], model: str) -> torch.Tensor:
    """Return P̂ of the drawn edges (source, target), [N, N]; norms divide by sums of weights over all edges."""
    n, count = graph.num_nodes, torch.from_numpy(np.diff(graph.indptr)).double()
    drawn, weight = torch.zeros(2, n, n, dtype=torch.float64)
    targets = np.repeat(np.arange(n), np.diff(graph.indptr))
    weight[targets, graph.indices] = torch.from_numpy(
        np.ones(graph.num_edges) if graph.edge_attr is None else graph.edge_attr
    )
    for source, target in edges:
        drawn[target, source] += 1
    scaled, degree = weight * drawn * (count / drawn.sum(1).clamp_min(1))[:, None], weight.sum(1)
    if model == "sage":
        return scaled / torch.where(degree > 0, degree, 1)[:, None]
    root = (degree + 1).rsqrt()
    return root[:, None] * (scaled + torch.eye(n, dtype=torch.float64)) * root[None]


def losses(
    graph: Graph,
    model: str,
    weights: list[torch.Tensor],
    fanouts: list[int],
    size: int,
    seed: int,
    steps: int,
    lr: float,
    learnt: LearntRows | None = None,
) -> list[float]:
    """Return the loss of every step of gradient descent; weights as in `oracle.full_graph`.

    ``learnt``: rows in place of features, which are learnt beside the weights.
    """
    adjacency = {
        v: sorted(graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()) for v in range(graph.num_nodes)
    }
    x, y = torch.from_numpy(graph.x), torch.from_numpy(graph.y)
    train, found = np.nonzero(graph.train_mask[:, 0])[0].tolist(), []
    for step in range(steps):
        seeds = seeds_of(train, size, seed, step)
        nodes, hops = mini_batch(adjacency, seeds, fanouts, seed, step, "uniform")
        weights = [w.detach().requires_grad_() for w in weights]
        h = x if learnt is None else learnt.weight
        for layer, edges in enumerate(reversed(hops)):
            p = propagation(graph, edges, model)
            h = h if layer == 0 else torch.relu(h)
            h = (p @ h if model == "gcn" else torch.cat([h, p @ h], dim=1)) @ weights[2 * layer].T
            h = h + weights[2 * layer + 1]
        loss = torch.nn.functional.cross_entropy(h[seeds], y[seeds])
        found.append(float(loss.detach()))
        if learnt is not None:
            learnt.update(nodes, torch.autograd.grad(loss, learnt.weight, retain_graph=True)[0])
        gradients = torch.autograd.grad(loss, weights)
        weights = [w - lr * g for w, g in zip(weights, gradients, strict=True)]
    return found
