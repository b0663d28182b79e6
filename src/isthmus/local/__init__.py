"""What a worker's model sees: its part of the graph, and the exchange with the others."""

from isthmus.local.graph import LocalGraph
from isthmus.local.policy import Policy
from isthmus.local.rows import FEW, place, take
from isthmus.local.savings import Savings
from isthmus.local.view import restrict

__all__ = ["FEW", "LocalGraph", "Policy", "Savings", "place", "restrict", "take"]
