"""What graph a step trains on: the whole one, or one drawn from it."""

from typing import Protocol

from isthmus.comm import Transport
from isthmus.sample.boundary import Boundary
from isthmus.sample.edges import Edges
from isthmus.sample.norm import Norm
from isthmus.sample.random_edges import RandomEdges


class Sampler(Protocol):
    """Draws the graph of a step. It is a function of (seed, step) alone, and every worker draws at the same time."""

    def draw(self, whole: Edges, seed: int, step: int, transport: Transport) -> Edges: ...


__all__ = ["Boundary", "Edges", "Norm", "RandomEdges", "Sampler"]
