"""What the oracles of vertex-cuts share: a graph, its parts, and these as dense matrices over all nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from graphs import community_graph
from oracle.cdfgnn import Cdfgnn
from oracle.cdfgnn_drawn import Drawn

from isthmus.nn import ModelConfig
from isthmus.partition import partition

LR, SEED = 1.0, 0
SHAPE = ModelConfig(model="gcn", layers=2, hidden=8, dropout=0.0)


def graph_of():
    return replace(community_graph(directed=True), edge_attr=None)


def vertex(graph, parts, folder):
    return partition(graph, parts, "ebv", cut="vertex", out=folder / f"ebv-{parts}")


def oracle_of(book, graph, options, drawn=False):
    """The parts as dense matrices over all nodes."""
    count, parts = graph.num_nodes, [book.part(k) for k in range(book.num_parts)]
    adjacency = np.zeros((len(parts), count, count))
    replica, owner = np.zeros((len(parts), count), bool), np.zeros(count, np.int64)
    for k, part in enumerate(parts):
        local = np.concatenate([part.nodes, part.halo_nodes])
        owner[part.nodes], replica[k][local] = k, True
        rows = [(part.inner_indptr, part.nodes, part.inner_indices), (part.halo_indptr, part.nodes, None),
                (part.mirror_indptr, part.halo_nodes, part.mirror_indices)]  # fmt: skip
        for indptr, targets, indices in rows:
            columns = part.halo_indices + len(part.nodes) if indices is None else indices
            np.add.at(adjacency[k], (np.repeat(targets, np.diff(indptr)), local[columns]), 1)
        adjacency[k][part.nodes, part.nodes] += 1
    scale = 1 / np.sqrt(np.diff(graph.indptr) + 1)
    model = SHAPE.build(graph.x.shape[1], graph.num_classes, SEED, torch.float64)
    weights = [(conv.weight.detach().numpy(), conv.bias.detach().numpy()) for conv in model.convs]
    about = adjacency * scale[:, None] * scale, replica, owner, weights, options
    if not drawn:
        return Cdfgnn(*about)
    every = range(len(parts))
    return Drawn(
        *about, links={(i, j): parts[i].halo_nodes[owner[parts[i].halo_nodes] == j] for i in every for j in every}
    )
