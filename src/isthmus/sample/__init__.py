"""What graph a step trains on: the whole one, or one drawn from it."""

from isthmus.sample.boundary import Boundary
from isthmus.sample.drawing import Drawing, Sampler
from isthmus.sample.drawn import Pattern
from isthmus.sample.edges import Edges
from isthmus.sample.near import Near
from isthmus.sample.neighbours import Neighbours
from isthmus.sample.norm import Norm
from isthmus.sample.optimal import OptimalBoundary
from isthmus.sample.random_edges import RandomEdges
from isthmus.sample.scene import Scene
from isthmus.sample.sizes import Sizes
from isthmus.sample.targets import Targets
from isthmus.sample.thin import FEW_READ, Thin

__all__ = [
    "FEW_READ",
    "Boundary",
    "Drawing",
    "Edges",
    "Near",
    "Neighbours",
    "Norm",
    "OptimalBoundary",
    "Pattern",
    "RandomEdges",
    "Sampler",
    "Scene",
    "Sizes",
    "Targets",
    "Thin",
]
