"""A loader's batches from the store of one of several workers."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.features.store import Store
from isthmus.kernels import Drawn
from isthmus.minibatch.source import ROWS
from isthmus.minibatch.subgraph import Elsewhere
from isthmus.sample import NeighbourSampler


class StoreSource:
    """The graph as a worker's store has it: rows and neighbours here or elsewhere. Users see original ids."""

    names = ROWS

    def __init__(self, store: Store):
        self.store, self.structure = store, store.server.structure
        self.edge_names = ("edge_attr",) if store.options.edge_data else ()
        self.num_nodes = len(store.server.original)

    def elsewhere(self, sampler: NeighbourSampler) -> Elsewhere | None:
        """Return who draws neighbours; None if all edges are here."""
        if self.store.server.whole:
            return None

        def draw(nodes: Tensor, step: int, hop: int) -> Drawn:
            found = self.store.sample(nodes.long(), hop, step, sampler=sampler, edges=True).wait()
            return Drawn(found.indptr, found.neighbours.to(torch.int32), found.edges)

        return Elsewhere(self.num_nodes, draw)

    def pull(self, name: str, nodes: Tensor) -> Tensor:
        return self.store.pull(name, nodes).wait()

    def pull_edges(self, name: str, edges: Tensor) -> Tensor:
        return self.store.pull_edges(name, edges).wait()

    def split(self, name: str) -> Tensor:
        """Return this worker's share of the nodes of a split: as many for each, so that all make as many batches.

        Equal ranges of them in the order of the parts; if their number is no multiple of the workers', the ranges
        overlap by a node.
        """
        server = self.store.server
        mask = self.store.pull(f"{name}_mask", torch.arange(self.num_nodes)).wait()
        nodes = (mask if mask.ndim == 1 else mask[:, 0]).nonzero().flatten()
        count, workers = len(nodes), self.store.size
        each = -(-count // workers)
        first = min(count * self.store.rank // workers, count - each)
        return server.original[nodes[first : first + each]]

    def user_ids(self, nodes: Tensor) -> Tensor:
        return self.store.server.original[nodes]

    def local(self, ids: Tensor) -> Tensor:
        return self.store.server.by_id[ids]
