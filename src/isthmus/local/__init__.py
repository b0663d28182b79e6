"""The graph as a worker's model sees it, and the exchange of rows with other workers behind it."""

from isthmus.local.controller import Guard
from isthmus.local.graph import LocalGraph
from isthmus.local.induced import induced_graph, isolated_graph
from isthmus.local.policy import Policy, Rung
from isthmus.local.rows import FEW, AsMade, gather_rows, scatter_rows
from isthmus.local.runtime import Runtime
from isthmus.local.savings import Savings

__all__ = [
    "FEW",
    "AsMade",
    "Guard",
    "LocalGraph",
    "Policy",
    "Rung",
    "Runtime",
    "Savings",
    "gather_rows",
    "induced_graph",
    "isolated_graph",
    "scatter_rows",
]
