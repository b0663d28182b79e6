"""The rows that workers read from each other, straight from the parts and from the whole graph."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from oracle.full_graph import propagation

from isthmus.graph.graph import Graph
from isthmus.partition import Book


class Links:
    """The owner of every node, and the rows that r reads from q, in the order in which they cross."""

    def __init__(self, graph: Graph, book: Book):
        self.graph, self.size = graph, book.num_parts
        self.owner = np.empty(graph.num_nodes, dtype=int)
        self.rows: dict[tuple[int, int], np.ndarray] = {}  # of (owner, reader): original ids
        for r in range(self.size):
            part = book.part(r)
            self.owner[part.nodes] = r
            for q in range(self.size):
                self.rows[q, r] = np.array(part.halo_nodes[part.halo_ptr[q] : part.halo_ptr[q + 1]])

    @cached_property
    def adjacency(self) -> np.ndarray:
        """A bool matrix [N, N]: row i reads column j."""
        return propagation(self.graph, "sage") > 0

    def near(self, q: int, r: int) -> np.ndarray:
        """Return the rows that training nodes of r read from q."""
        train = self.graph.train_mask[:, 0] & (self.owner == r)
        return self.rows[q, r][self.adjacency[train][:, self.rows[q, r]].any(0)]

    @property
    def crossing(self) -> np.ndarray:
        """A bool matrix [N, N]: i and j have different owners."""
        return self.owner[:, None] != self.owner[None, :]
