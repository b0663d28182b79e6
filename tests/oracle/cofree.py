"""CoFree-GNN, literally: every part a graph of its own, dense; a replica counts by its share of the node's edges."""

from __future__ import annotations

import numpy as np
from oracle.full_graph import softmax

from isthmus.graph.graph import Graph
from isthmus.partition import Book


def local_edges(book: Book, k: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the nodes of a part, masters first, its edges as a matrix, and the number of masters."""
    part = book.part(k)
    nodes, n = np.concatenate([part.nodes, part.halo_nodes]), len(part.nodes)
    edges = np.zeros((len(nodes), len(nodes)))
    for first, indptr, indices in (
        (0, part.inner_indptr, part.inner_indices),
        (0, part.halo_indptr, part.halo_indices + n),
        (n, part.mirror_indptr, part.mirror_indices),
    ):
        np.add.at(edges, (first + np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), indices), 1)
    return nodes, edges, n


def losses(graph: Graph, book: Book, model: str, weights: list[np.ndarray], steps: int, lr: float) -> list[float]:
    """Return the loss of every step of gradient descent; weights as in `full_graph`."""
    weights, found, degree = [w.copy() for w in weights], [], np.diff(graph.indptr)
    for _ in range(steps):
        shares = [of_part(graph, local_edges(book, k), degree, model, weights) for k in range(book.num_parts)]
        found.append(sum(loss for loss, _ in shares))
        weights = [w - lr * sum(g) for w, *g in zip(weights, *(one for _, one in shares), strict=True)]
    return found


def of_part(graph: Graph, part, degree: np.ndarray, model: str, weights: list[np.ndarray]):
    """Return a part's share of the loss, and its gradients."""
    nodes, edges, masters = part
    here = edges.sum(1)
    p = edges / np.maximum(here, 1)[:, None]
    if model == "gcn":
        scale = 1 / np.sqrt(here + 1)
        p = scale[:, None] * (edges + np.eye(len(nodes))) * scale
    counts = np.where(degree[nodes] > 0, here / np.maximum(degree[nodes], 1), np.arange(len(nodes)) < masters)
    counts = counts * graph.train_mask[nodes, 0] / graph.train_mask[:, 0].sum()
    layers, inputs, z = len(weights) // 2, [], graph.x[nodes]
    for layer in range(layers):
        h = z if layer == 0 else np.maximum(z, 0)
        inputs.append((h, p @ h if model == "gcn" else np.concatenate([h, p @ h], axis=1)))
        z = inputs[-1][1] @ weights[2 * layer].T + weights[2 * layer + 1]
    q, y = softmax(z), graph.y[nodes]
    loss = -(counts * np.log(q[np.arange(len(nodes)), y])).sum()
    j, gradients = (q - np.eye(graph.num_classes)[y]) * counts[:, None], []
    for layer in reversed(range(layers)):
        gradients = [j.T @ inputs[layer][1], j.sum(0), *gradients]
        back = j @ weights[2 * layer]
        width = inputs[layer][0].shape[1]
        back = p.T @ back if model == "gcn" else back[:, :width] + p.T @ back[:, width:]
        j = back * (inputs[layer][0] > 0)
    return loss, gradients
