"""The piece of the graph that one worker holds while it runs: edges, links to other workers, norms, subgraphs."""

from isthmus.shard.cover import Cover, Covered, make_cover
from isthmus.shard.draw_context import DrawContext
from isthmus.shard.drawn import BothWays, Pattern
from isthmus.shard.layer import Layer
from isthmus.shard.needed_rows import NeededRows
from isthmus.shard.norm import Norm
from isthmus.shard.row_subset import RowSubset
from isthmus.shard.shard import Nodes, Shard
from isthmus.shard.vertex import IsolatedShard, Leg, NeededReplicas, Replicas, VertexShard

__all__ = [
    "BothWays",
    "Cover",
    "Covered",
    "DrawContext",
    "IsolatedShard",
    "Layer",
    "Leg",
    "NeededReplicas",
    "NeededRows",
    "Nodes",
    "Norm",
    "Pattern",
    "Replicas",
    "RowSubset",
    "Shard",
    "VertexShard",
    "make_cover",
]
