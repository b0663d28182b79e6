"""Batches together: the seed nodes of all workers are one batch, whose every node is computed once, by its owner."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from isthmus.comm import Links, Where
from isthmus.kernels import Csr
from isthmus.minibatch.batch import Expanded
from isthmus.minibatch.requests import Requests
from isthmus.minibatch.rows import Rows
from isthmus.minibatch.seeds import owner_of
from isthmus.partition.part import Part
from isthmus.sample import Expansion, NeighbourSampler, Numbering, Structure
from isthmus.shard import Layer, Nodes, Pattern
from isthmus.shard.load import as_tensor


@dataclass(frozen=True)
class Known:
    """Original ids and degrees of a worker's own nodes, and of its halo nodes by book id.

    Where edges count by weights, another one has sums of weights for degrees, float64.
    """

    original: Tensor  # int64 [n]
    degree: Tensor  # int64 [n]
    halo: Tensor  # int64 [h], book ids, ascending
    halo_original: Tensor  # int64 [h]
    halo_degree: Tensor  # int64 [h]

    @staticmethod
    def of(part: Part, ranges: Tensor) -> Known:
        """Return what a part knows; worker q owns the book ids ``ranges[q]:ranges[q+1]``."""
        counts = torch.from_numpy(part.halo_ptr[1:] - part.halo_ptr[:-1])
        halo = torch.repeat_interleave(ranges[:-1], counts) + as_tensor(part.halo_rows).long()
        order = torch.argsort(halo)
        of_halo = (as_tensor(part.halo_nodes)[order], as_tensor(part.halo_degree)[order])
        return Known(as_tensor(part.nodes), as_tensor(part.degree), halo[order], *of_halo)

    def nodes(self, own: Tensor, halo: Tensor) -> Nodes:
        """Return ids and degrees of own rows (int64), and of halo nodes (int64, book ids)."""
        at = torch.searchsorted(self.halo, halo)
        return Nodes(self.original[own], self.halo_original[at], self.degree[own], self.halo_degree[at])

    def weighed(self, of_own: Tensor, requests: Requests) -> Known:
        """Return the same with weighted degrees, float64 [n] of own nodes; every worker calls it at the same time."""
        of_halo = Rows(of_own[:, None], requests).pull(self.halo, 0, "weighted degrees")
        return replace(self, degree=of_own, halo_degree=of_halo[:, 0])


class Together:
    """Expands the joint batch: each worker draws neighbours for the nodes that it owns, and tells their owners.

    In the layer next to the seed nodes, and in all others but the input layer, rows of other workers are read over
    links made for this batch. The input layer reads rows that never change, which are pulled ahead like those of a
    batch apart.
    """

    def __init__(
        self, sampler: NeighbourSampler, structure: Structure, requests: Requests, own: Part, weighted: bool = False
    ):
        """``structure``: of this worker's part ``own``. ``weighted``: every edge counts by the weight it carries."""
        self.sampler, self.structure, self.requests = sampler, structure, requests
        self.part, self.weighted = own, weighted
        self.known = Known.of(own, requests.ranges)
        self.weights = self.known.weighed(structure.weighted_degree, requests) if weighted else None
        self.own = Numbering(structure.num_rows)
        self.every = Numbering(int(requests.ranges[-1]))

    def expand(self, seeds: Tensor, step: int) -> Expanded:
        """Expand my seed nodes (int64, book ids), which I own."""
        layers: list[Layer] = []
        first, hops = self.requests.first, len(self.sampler.fanouts)
        self.own.start(seeds - first)
        for hop in range(hops - 1):
            drawn = self.sampler.expand(self.structure, self.own.nodes + first, step, hop)
            layers.insert(0, self._layer(drawn, Where(f"hop {hop}", "sample", step, "ids")))
        frontier = self.own.nodes + first
        drawn = self.sampler.expand(self.structure, frontier, step, hops - 1)
        self.every.start(frontier)
        csr, nodes = self.every.add(drawn.indptr, drawn.neighbours), self.every.nodes.clone()
        degrees = None if self.weights is None else self._about(nodes, self.weights)[2:]
        pattern, about = Pattern(csr, drawn.weight, drawn.data), self._about(nodes, self.known)
        layers.insert(0, Layer(pattern, about, drawn.scale, weighted_degrees=degrees))
        return Expanded(nodes, tuple(layers))

    def _layer(self, drawn: Expansion, where: Where) -> Layer:
        """Return the layer of a hop; number the nodes that it reads and that I own, or that others read of mine."""
        requests, own = self.requests, self._is_own(drawn.neighbours)
        before = torch.cat([drawn.indptr.new_zeros(1), own.cumsum(0)])[drawn.indptr]  # own edges before each row
        inner = self.own.add(before, drawn.neighbours[own] - requests.first)
        halo, column = drawn.neighbours[~own].unique(return_inverse=True)  # ascending, so grouped by owner
        asked = requests.ask(halo, where)
        send_rows = [self.own.add(torch.tensor([0, len(rows)]), rows.long()).indices for rows in asked.theirs]
        return Layer(
            some_edges(drawn, own, Csr(before, inner.indices, len(self.own.nodes))),
            self.known.nodes(self.own.nodes, halo),
            drawn.scale,
            some_edges(drawn, ~own, Csr(drawn.indptr - before, column.to(torch.int32), len(halo))),
            Links(send_rows, asked.mine.counts),
            None if self.weights is None else self.weights.nodes(self.own.nodes, halo)[2:],
        )

    def _about(self, nodes: Tensor, known: Known) -> Nodes:
        """Return ids and degrees of nodes (int64, book ids), of which some are mine and the others in my halo."""
        own = self._is_own(nodes)
        found = known.nodes(nodes[own] - self.requests.first, nodes[~own])
        original, degree = torch.empty_like(nodes), found.degree.new_empty(len(nodes))
        original[own], original[~own] = found.inner, found.halo
        degree[own], degree[~own] = found.degree, found.halo_degree
        return Nodes(original, original[:0], degree, degree[:0])

    def _is_own(self, nodes: Tensor) -> Tensor:
        return owner_of(nodes, self.requests.ranges) == self.requests.transport.rank


def some_edges(drawn: Expansion | Pattern, which: Tensor, csr: Csr) -> Pattern:
    """Return the edges of a bool mask, whose pattern is ``csr``, with their weights and what they carry."""
    weight, data = (None if one is None else one[which] for one in (drawn.weight, drawn.data))
    return Pattern(csr, weight, data)
