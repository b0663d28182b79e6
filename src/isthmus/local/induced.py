"""The graph that an inductive model may see while it trains."""

from __future__ import annotations

from torch import Tensor

from isthmus.errors import InputError
from isthmus.local.graph import LocalGraph
from isthmus.local.runtime import Runtime
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
    return LocalGraph(Runtime(shard, run.transport, run.asked, run.dtype, run.rows_dtype, run.seed), node_type)
