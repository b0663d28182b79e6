"""What a worker's model sees: its part of the graph, and the exchange with the others."""

from isthmus.local.graph import LocalGraph
from isthmus.local.policy import Policy
from isthmus.local.rows import FEW, gather_rows, scatter_rows
from isthmus.local.savings import Savings
from isthmus.shard.induced import restrict

__all__ = ["FEW", "LocalGraph", "Policy", "Savings", "gather_rows", "restrict", "scatter_rows"]
