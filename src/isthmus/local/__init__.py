"""What a worker's model sees of the graph."""

from isthmus.local.graph import LocalGraph
from isthmus.local.savings import Savings
from isthmus.local.view import restrict

__all__ = ["LocalGraph", "Savings", "restrict"]
