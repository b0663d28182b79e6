"""Vertex-cuts: every edge in one part, a node in every part that has an edge of it; one of these owns it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from isthmus.errors import InputError
from isthmus.graph.graph import Graph
from isthmus.kernels.native import call, core
from isthmus.outside import is_outside
from isthmus.partition.adjacency import csr
from isthmus.partition.methods import from_outside
from isthmus.partition.vertex import twin
from isthmus.partition.vertex.edges import Report, mark_replicas, replica_sets
from isthmus.partition.vertex.expansion import hep, ne, tau_of
from isthmus.partition.vertex.options import VertexOptions
from isthmus.partition.vertex.streams import ebv, hash_edges, hdrf, random_edges

__all__ = ["VERTEX_METHODS", "VertexMethod", "VertexOptions", "masters", "place_edges"]

MOST_PARTS = 2**15 - 1  # the part of an edge has 16 bits


@dataclass(frozen=True)
class VertexMethod:
    """A method to place edges, with the options that it uses."""

    place: Callable[[Graph, int, VertexOptions, Report], np.ndarray]  # → int16 [E]
    description: str
    takes: tuple[str, ...] = ()
    settle: Callable[[Graph, VertexOptions], VertexOptions] = lambda graph, options: options
    """Returns the options with those filled in that depend on the graph and on this machine, for the book to say."""


VERTEX_METHODS = MappingProxyType(
    {
        "hep": VertexMethod(
            hep,
            "neighbourhood expansion, hubs streamed where memory is short: the fewest replicas",
            ("seed", "tolerance", "tau"),
            lambda graph, options: replace(options, tau=tau_of(graph, options)),
        ),
        "ne": VertexMethod(ne, "neighbourhood expansion of the whole graph in memory", ("seed",)),
        "ebv": VertexMethod(
            ebv,
            "edge by edge, edges and nodes balanced, hosts known (CDFGNN's)",
            ("hosts", "gamma", "host_score"),
            lambda graph, options: replace(options, gamma=options.weight),
        ),
        "hdrf": VertexMethod(hdrf, "one pass over the edges, high degrees replicated first", ("tolerance",)),
        "hash": VertexMethod(hash_edges, "by a hash of the end of smaller degree (DBH)", ("seed",)),
        "random": VertexMethod(random_edges, "every edge anywhere: the worst cut, a baseline", ("seed",)),
    }
)


def place_edges(graph: Graph, parts: int, method: str, options: VertexOptions, report: Report) -> np.ndarray:
    """Return the part of every edge by the named method, int16 [E] in the order of ``graph.indices``."""
    if graph.num_nodes < parts or not 1 <= parts <= MOST_PARTS:
        most = min(graph.num_nodes, MOST_PARTS)
        raise InputError(f"cannot cut {graph.num_nodes} nodes into {parts} parts: ask for 1 to {most} parts")
    if parts == 1:
        return np.zeros(graph.num_edges, np.int16)
    chosen = from_outside(method, VertexMethod) if is_outside(method) else VERTEX_METHODS[method]
    part = chosen.place(graph, parts, options, report)
    library = core()
    if graph.symmetric and library is not None:
        call(library.place_reverses, graph.num_nodes, *csr(graph), part)
    elif graph.symmetric:
        twin.place_reverses(graph, part)
    return part


def masters(graph: Graph, parts: int, part: np.ndarray, host: Sequence[int] | None = None) -> np.ndarray:
    """Return the owner of every node, int32 [N]: one of the parts that hold an edge of it.

    Owners are chosen such that all parts send about the same number of rows: of a node with r replicas its owner sends
    r − 1, the others one each. With the ``host`` of every part, the owner is on the host with the most replicas.
    """
    library = core()
    if library is None:
        return twin.masters(graph, parts, part, host)
    sets, owner = replica_sets(graph.num_nodes, parts), np.empty(graph.num_nodes, np.int32)
    mark_replicas(graph, part, sets)
    hosts = None if host is None else np.array(host, np.int32)
    call(library.choose_masters, graph.num_nodes, parts, sets.shape[1], sets, hosts, owner)
    return owner
