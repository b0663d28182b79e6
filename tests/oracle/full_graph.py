"""Full-graph training as the papers print it (PSC-GCN eqs. 1–9): dense matrices, one process, gradients by hand.

H^0 = X, Z^l = P H^{l-1} W^l (+ H^{l-1} W_self^l for SAGE) + b^l, H^l = relu(Z^l); J^l is the gradient by Z^l.
"""

from __future__ import annotations

import numpy as np

from isthmus.graph.graph import Graph


def propagation(graph: Graph, model: str) -> np.ndarray:
    """Return P: symmetric normalisation with self loops for gcn, mean over neighbours for sage."""
    adjacency = np.zeros((graph.num_nodes, graph.num_nodes))
    for node in range(graph.num_nodes):
        adjacency[node, graph.indices[graph.indptr[node] : graph.indptr[node + 1]]] = 1
    if model == "gcn":
        adjacency += np.eye(graph.num_nodes)
        scale = 1 / np.sqrt(adjacency.sum(1))
        return scale[:, None] * adjacency * scale[None, :]
    return adjacency / np.maximum(adjacency.sum(1, keepdims=True), 1)


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def losses(graph: Graph, model: str, weights: list[np.ndarray], steps: int, lr: float) -> list[float]:
    """Return the loss of every step of gradient descent.

    weights: W^1, b^1, W^2, b^2, …; SAGE's W is [W_self | W_mean].
    """
    p, train, n = propagation(graph, model), graph.train_mask[:, 0], graph.train_mask[:, 0].sum()
    weights, found = [w.copy() for w in weights], []
    layers = len(weights) // 2
    for _ in range(steps):
        inputs, z = [], graph.x
        for layer in range(layers):
            h = z if layer == 0 else np.maximum(z, 0)
            inputs.append(p @ h if model == "gcn" else np.concatenate([h, p @ h], axis=1))
            z = inputs[-1] @ weights[2 * layer].T + weights[2 * layer + 1]
            if layer < layers - 1:
                inputs.append(z)
        q = softmax(z)
        found.append(float(-np.log(q[train, graph.y[train]]).sum() / n))
        j = (q - np.eye(graph.num_classes)[graph.y]) * train[:, None] / n
        gradients: list[np.ndarray] = []
        for layer in reversed(range(layers)):
            gradients = [j.T @ inputs[2 * layer], j.sum(0), *gradients]
            if layer:
                back = j @ weights[2 * layer]
                width = weights[2 * layer].shape[1] // 2
                back = p.T @ back if model == "gcn" else back[:, :width] + p.T @ back[:, width:]
                j = back * (inputs[2 * layer - 1] > 0)
        weights = [w - lr * g for w, g in zip(weights, gradients, strict=True)]
    return found
