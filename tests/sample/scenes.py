"""Settings for sampler tests: small graphs cut over a few workers, and the propagation matrix of a drawn graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from graphs import community_graph
from torch import Tensor

from isthmus.comm import Hub, Transport
from isthmus.graph.graph import Graph
from isthmus.kernels import Csr
from isthmus.local import LocalGraph
from isthmus.partition import Book, partition
from isthmus.sample import Boundary, Neighbours, OptimalBoundary, RandomEdges
from isthmus.sample.variance import Aggregation
from isthmus.shard import DrawContext, Shard

SAMPLERS = {
    "independent": Neighbours(0.3),
    "coupled": Neighbours(0.3, coupled=True),
    "optimal-boundary": OptimalBoundary(0.3),
    "boundary": Boundary(0.3),
    "boundary-edge": RandomEdges(0.3, "boundary"),
    "drop-edge": RandomEdges(0.3, "all"),
}


def small_graph(directed: bool = False) -> Graph:
    return community_graph(nodes=48, degree=5.0, directed=directed)


def ring_graph(nodes: int = 24) -> Graph:
    """Return a graph in which each node is joined to the next two: of four blocks, opposite ones have no link."""
    near = (np.arange(nodes)[:, None] - np.arange(nodes)[None, :]) % nodes
    linked = np.isin(near, (1, 2, nodes - 1, nodes - 2))
    whole = community_graph(nodes=nodes)
    indices = np.nonzero(linked)[1].astype(np.int32)
    return replace(whole, indptr=np.arange(nodes + 1) * 4, indices=indices, edge_attr=None)


def with_named_edges(graph: Graph) -> Graph:
    """Return the graph with edge attributes: the ids of an edge's source and target."""
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    return replace(graph, edge_attr=np.stack([graph.indices, targets], axis=1).astype(np.float32))


def on_workers(graph: Graph, workers: int, work, method: str = "blocks") -> list:
    """Run work(context) on every worker, in float64; return the results in rank order."""
    with TemporaryDirectory() as folder:
        book = partition(with_named_edges(graph), workers, method, out=Path(folder) / "parts", order="given")
        return Hub(workers).run(lambda transport: work(scene_of(book, transport)))


def scene_of(book: Book, transport: Transport) -> DrawContext:
    graph = LocalGraph.from_part(book.part(transport.rank), transport, book.symmetric, dtype=torch.float64)
    return DrawContext(graph.runtime.whole, transport, seed=7, dtype=torch.float64)


def rows_of(nodes: Tensor, seed: int = 0) -> Tensor:
    """Return rows of very different lengths, by original id: float64 [n, 5]."""
    draw = torch.Generator().manual_seed(seed)
    rows, lengths = torch.randn(500, 5, generator=draw), torch.randn(500, 1, generator=draw).exp()
    return (rows * lengths).double()[nodes]


def aggregation(context: DrawContext, norm: str = "mean", seed: int = 0) -> Aggregation:
    return Aggregation.of(context, rows_of(context.whole.nodes, seed), norm)


def propagation(edges: Shard, norm: str, nodes: int) -> Tensor:
    """Return P [n, N], from an aggregation of unit rows; columns are original ids."""
    unit, scale = torch.eye(nodes, dtype=torch.float64), edges.norm(norm, torch.float64)
    out = edges.aggregate_inner(unit[edges.nodes], scale)
    edges.aggregate_halo(unit[edges.halo_nodes], scale, out)
    return out


def dense_chances(whole: Shard, p: tuple[Tensor, Tensor] | None, nodes: int) -> Tensor | None:
    if p is None:
        return None
    out = torch.zeros(whole.num_inner, nodes, dtype=torch.float64)
    for csr, ids, chance in ((whole.inner, whole.nodes, p[0]), (whole.halo, whole.halo_nodes, p[1])):
        out[csr.edge_rows, ids[csr.indices.long()]] = chance
    return out


def matrix(csr: Csr, weight: Tensor | None) -> Tensor:
    out = torch.zeros(csr.num_rows, csr.num_cols, dtype=torch.float64)
    out[csr.edge_rows, csr.indices.long()] = 1.0 if weight is None else weight
    return out
