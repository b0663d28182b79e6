"""Samplers: each draws the graph that a step trains on from the whole one."""

from isthmus.sample.boundary import Boundary
from isthmus.sample.last_layer import FEW_NEEDED, LastLayer
from isthmus.sample.neighbours import Neighbours
from isthmus.sample.optimal_boundary import OptimalBoundary
from isthmus.sample.random_edges import RandomEdges
from isthmus.sample.row_norms import RowNorms
from isthmus.sample.schedule import Sampler, Schedule

__all__ = [
    "FEW_NEEDED",
    "Boundary",
    "LastLayer",
    "Neighbours",
    "OptimalBoundary",
    "RandomEdges",
    "RowNorms",
    "Sampler",
    "Schedule",
]
