"""Cut a graph that has grown: nodes that were cut before stay where they are, new ones go to their neighbours."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from isthmus.graph.graph import Graph, SparseRows
from isthmus.partition.book import Book
from isthmus.partition.border import Layout, Relabelling
from isthmus.partition.parts import write_parts


def is_grown(graph: Graph, book: Book) -> bool:
    """Return whether the first nodes of a graph are those of the parts, with the same features."""
    if graph.num_nodes < book.nodes or graph.num_features != book.features:
        return False
    if isinstance(graph.x, SparseRows) or "x.npy" not in book.parts[0].files:
        return False
    return all(
        np.array_equal(np.asarray(graph.x[book.array(k, "nodes.npy")]), book.array(k, "x.npy"))
        for k in range(book.num_parts)
    )


def extend(graph: Graph, book: Book, out: Path) -> Book:
    """Write parts of a graph that has grown (`is_grown`), without cutting it again; return their book.

    Old nodes keep their owner and their order, so that sums over neighbours that did not change keep their bits. A new
    node goes to the part that has most of its neighbours, else to the smallest.
    """
    members = [np.asarray(book.array(k, "nodes.npy")) for k in range(book.num_parts)]
    owner = np.full(graph.num_nodes, -1, np.int64)
    for k, nodes in enumerate(members):
        owner[nodes] = k
    sizes = np.array([len(nodes) for nodes in members])
    for node in range(book.nodes, graph.num_nodes):
        around = owner[graph.indices[graph.indptr[node] : graph.indptr[node + 1]]]
        votes = np.bincount(around[around >= 0], minlength=book.num_parts)
        owner[node] = np.lexsort((sizes, -votes))[0]
        sizes[owner[node]] += 1
    new = np.arange(book.nodes, graph.num_nodes)
    members = [np.concatenate([nodes, new[owner[new] == k]]) for k, nodes in enumerate(members)]
    layout = Layout(Relabelling.of(members), "edge")
    return write_parts(graph, layout, out, method=book.method, options=dict(book.options), overwrite=False)
