"""ByteGNN's partitioner: blocks of the nodes that labelled ones read, assigned whole, so that batches read at home.

Mini-batches read the K-hop neighbourhoods of labelled nodes and nothing else. So every labelled node is the centre of a
block of the nodes within K hops, and parts are made of blocks such that each has its share of training, validation and
test nodes (sec. 4.2.3 of the survey).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from isthmus.errors import InputError
from isthmus.graph.graph import Graph
from isthmus.partition.bytegnn.blocks import make_blocks
from isthmus.partition.bytegnn.greedy import assign_greedily
from isthmus.partition.bytegnn.multilevel import assign_by_reads, expected_reads, refine
from isthmus.partition.metis import MetisOptions

__all__ = ["ASSIGNMENTS", "BlockOptions", "bytegnn"]

ASSIGNMENTS = {
    "multilevel": "METIS on the graph of blocks, edges weighted by what batches read, then node by node",
    "greedy": "algorithm 2 with guards: the part with the most edges to a block, balanced",
    "as-published": "algorithm 2 as it is printed",
}
FEW = 0.1  # share of labelled nodes up to which there are few blocks, so that METIS can have their graph
PIECES = 64  # nodes that no labelled one reads are dealt out in pieces: this many to a part


@dataclass(frozen=True)
class BlockOptions:
    """The options of a cut into blocks."""

    assignment: str | None = None
    """See `ASSIGNMENTS`; None: multilevel where few nodes are labelled, else greedy."""
    hops: int = 2
    """How far a block reaches from its labelled node."""
    passes: int = 10
    """How often multilevel looks at every node in the end."""
    tolerance: float = 0.03
    seed: int = 0

    def __post_init__(self) -> None:
        if self.assignment is not None and self.assignment not in ASSIGNMENTS:
            raise InputError(f"unknown assignment {self.assignment!r}: choose one of {', '.join(ASSIGNMENTS)}")
        if self.hops < 1:
            raise InputError(f"hops must be at least 1, not {self.hops}")


def bytegnn(
    graph: Graph, parts: int, options: BlockOptions, report: Callable[[int, int], None] = lambda done, total: None
) -> np.ndarray:
    """Return the part of every node, int32 [N].

    Memory is a few numbers per node, and with multilevel METIS' for the graph of blocks; edges stay where they are.
    """
    if graph.num_nodes >= 2**31:
        raise InputError(f"bytegnn numbers at most 2^31 nodes, and {graph.name} has more: use --method ldg")
    chosen = options.assignment or default_assignment(graph)
    published = chosen == "as-published"
    most = graph.num_nodes if published else max(1, graph.num_nodes // (parts * PIECES))
    blocks = make_blocks(graph, options.hops, most)
    if chosen != "multilevel":
        return assign_greedily(graph, blocks, parts, options.tolerance, not published, report)
    reads = expected_reads(graph, options.hops)
    report(1, 3)
    part = assign_by_reads(graph, blocks, parts, reads, MetisOptions(tolerance=options.tolerance, seed=options.seed))
    report(2, 3)
    return refine(graph, part, parts, reads, options.passes, options.tolerance)


def default_assignment(graph: Graph) -> str:
    """Return multilevel where few nodes are labelled, else greedy: blocks are then single nodes, too many for METIS."""
    labelled = (graph.train_mask | graph.val_mask | graph.test_mask).any(axis=1)
    return "multilevel" if np.count_nonzero(labelled) <= FEW * graph.num_nodes else "greedy"
