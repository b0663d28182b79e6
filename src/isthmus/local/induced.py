"""The graph that a model may see while it trains, where that is not all of it."""

from __future__ import annotations

from torch import Tensor

from isthmus.errors import InputError
from isthmus.local.graph import LocalGraph
from isthmus.local.runtime import Runtime
from isthmus.shard import IsolatedShard, Shard, VertexShard
from isthmus.shard.induced import induced_shard
from isthmus.shard.weighted import weigh


def induced_graph(graph: LocalGraph, keep: Tensor) -> LocalGraph:
    """Return the graph of the kept nodes (bool [n]), which is all that an inductive model may see in training."""
    run = graph.runtime
    if run.whole.replicated:
        raise InputError("inductive training needs all edges of a node on one worker: cut the graph with --cut edge")
    shard = induced_shard(run.whole, keep, run.transport)
    if run.whole.weighted:
        weigh(shard, run.transport)
    node_type = None if graph.node_type is None else graph.node_type[keep]
    return _over(shard, graph, node_type)


def isolated_graph(graph: LocalGraph) -> LocalGraph:
    """Return the graph of this worker's own edges under a vertex-cut, as if there were no others."""
    assert isinstance(graph.runtime.whole, VertexShard), "other cuts have no replicas"
    return _over(IsolatedShard(graph.runtime.whole), graph, graph.node_type)


def _over(shard: Shard, graph: LocalGraph, node_type: Tensor | None) -> LocalGraph:
    run = graph.runtime
    return LocalGraph(Runtime(shard, run.transport, run.asked, run.dtype, run.rows_dtype, run.seed), node_type)
