"""Training on joint batches, literally: dense matrices over all nodes, one process, one step after another.

A batch is a matrix P̂ for every layer and how much each node counts in the loss. Layer l computes
Z^l = P̂^l H^{l-1} W^l (+ H^{l-1} W_self^l for SAGE) + b^l, H^l = relu(Z^l).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from oracle.mini_batch import key
from oracle.mini_batch_training import signed

from isthmus.graph.graph import Graph
from isthmus.kernels import stream
from isthmus.partition import metis
from isthmus.partition.adjacency import symmetric_csr


class LiteralBatch(NamedTuple):
    """One step: P̂ of every layer, the input layer first, and how much each node counts in the loss."""

    layers: list[np.ndarray]
    counts: np.ndarray


Batches = Callable[[int], LiteralBatch]


def adjacency(graph: Graph) -> np.ndarray:
    """Return the edges as a matrix: [i, j] is the weight of j → i, one without weights."""
    found = np.zeros((graph.num_nodes, graph.num_nodes))
    weights = np.ones(graph.num_edges) if graph.edge_attr is None else graph.edge_attr
    found[np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr)), graph.indices] = weights
    return found


def propagation(edges: np.ndarray, degree: np.ndarray, model: str) -> np.ndarray:
    """Return P̂ of edges that count as the matrix says, where norms divide by these degrees."""
    if model == "sage":
        return edges / np.where(degree > 0, degree, 1)[:, None]
    root = 1 / np.sqrt(degree + 1)
    return root[:, None] * (edges + np.eye(len(edges))) * root


def losses(graph: Graph, model: str, weights: list[np.ndarray], batches: Batches, steps: int, lr: float) -> np.ndarray:
    """Return the loss of every step of gradient descent; weights as in `oracle.full_graph`."""
    tensors, found = [torch.from_numpy(w) for w in weights], []
    y = torch.from_numpy(graph.y)
    for step in range(steps):
        layers, counts = batches(step)
        tensors = [w.detach().requires_grad_() for w in tensors]
        h = torch.from_numpy(graph.x)
        for layer, p in enumerate(map(torch.from_numpy, layers)):
            h = h if layer == 0 else torch.relu(h)
            h = (p @ h if model == "gcn" else torch.cat([h, p @ h], dim=1)) @ tensors[2 * layer].T
            h = h + tensors[2 * layer + 1]
        loss = torch.nn.functional.cross_entropy(h, y, reduction="none") @ torch.from_numpy(counts)
        found.append(float(loss.detach()))
        tensors = [w - lr * g for w, g in zip(tensors, torch.autograd.grad(loss, tensors), strict=True)]
    return np.array(found)


def between(a: np.ndarray, nodes: list[int]) -> np.ndarray:
    """Return the edges between some nodes, as a matrix of all."""
    inside = np.isin(np.arange(len(a)), nodes)
    return a * inside[:, None] * inside[None]


def clusters_of(graph: Graph, count: int, seed: int) -> np.ndarray:
    """Return METIS' cluster of every node."""
    indptr, indices, weights = symmetric_csr(graph.indptr, graph.indices)
    return metis.kway(indptr, indices, count, metis.MetisOptions(seed=seed), edge_weights=weights)


def cluster_gcn(graph: Graph, model: str, cluster: np.ndarray, per_batch: int, degrees: str, seed: int) -> Batches:
    """Cluster-GCN: in each epoch the clusters ascend by a random number; a step takes the next ``per_batch``."""
    a, train, count = adjacency(graph), graph.train_mask[:, 0], int(cluster.max()) + 1
    order = [list(range(first, min(first + per_batch, count))) for first in range(0, count, per_batch)]
    together = sum(len(one) * (len(one) - 1) for one in order) / (count * (count - 1)) if count > 1 else 1

    def batch(step: int) -> LiteralBatch:
        epoch, within = divmod(step, len(order))
        shuffled = sorted(range(count), key=lambda k: signed(key(stream(0xC105, seed, epoch), k)))
        chosen = [shuffled[place] for place in order[within]]
        nodes = [v for v in range(graph.num_nodes) if cluster[v] in chosen]
        edges = between(a, nodes)
        if degrees == "graph":
            edges[cluster[:, None] != cluster[None]] /= together
        degree = a.sum(1) if degrees == "graph" else edges.sum(1)
        seeds = train & np.isin(np.arange(len(a)), nodes)
        return LiteralBatch([propagation(edges, degree, model)] * 3, seeds / max(seeds.sum(), 1))

    return batch
