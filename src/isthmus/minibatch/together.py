"""Batches together: the seed nodes of all workers are one batch, whose every node is computed once, by its owner."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.comm import Links, Where
from isthmus.kernels import Csr
from isthmus.minibatch.batch import Expanded
from isthmus.minibatch.requests import Requests
from isthmus.minibatch.seeds import owner_of
from isthmus.partition.part import Part
from isthmus.sample import Expansion, NeighbourSampler, Numbering, Structure
from isthmus.shard import Layer, Nodes, Pattern
from isthmus.shard.load import as_tensor


@dataclass(frozen=True)
class Known:
    """Original ids and degrees of a worker's own nodes, and of its halo nodes by book id."""

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


class Together:
    """Expands the joint batch: each worker draws neighbours for the nodes that it owns, and tells their owners.

    In the layer next to the seed nodes, and in all others but the input layer, rows of other workers are read over
    links made for this batch. The input layer reads rows that never change, which are pulled ahead like those of a
    batch apart.
    """

    def __init__(self, sampler: NeighbourSampler, structure: Structure, requests: Requests, known: Known):
        """``structure``: of this worker's part."""
        self.sampler, self.structure, self.requests, self.known = sampler, structure, requests, known
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
        layers.insert(0, Layer(Pattern(csr, drawn.weight), self._about(nodes), drawn.scale))
        return Expanded(nodes, tuple(layers))

    def _layer(self, drawn: Expansion, where: Where) -> Layer:
        """Return the layer of a hop; number the nodes that it reads and that I own, or that others read of mine."""
        requests, own = self.requests, self._is_own(drawn.neighbours)
        before = torch.cat([drawn.indptr.new_zeros(1), own.cumsum(0)])[drawn.indptr]  # own edges before each row
        inner = self.own.add(before, drawn.neighbours[own] - requests.first)
        halo, column = drawn.neighbours[~own].unique(return_inverse=True)  # ascending, so grouped by owner
        asked = requests.ask(halo, where)
        send_rows = [self.own.add(torch.tensor([0, len(rows)]), rows.long()).indices for rows in asked.theirs]
        weight = drawn.weight
        return Layer(
            Pattern(Csr(before, inner.indices, len(self.own.nodes)), None if weight is None else weight[own]),
            self.known.nodes(self.own.nodes, halo),
            drawn.scale,
            Pattern(
                Csr(drawn.indptr - before, column.to(torch.int32), len(halo)), None if weight is None else weight[~own]
            ),
            Links(send_rows, asked.mine.counts),
        )

    def _about(self, nodes: Tensor) -> Nodes:
        """Return ids and degrees of nodes (int64, book ids), of which some are mine and the others in my halo."""
        own, none = self._is_own(nodes), nodes[:0]
        found = self.known.nodes(nodes[own] - self.requests.first, nodes[~own])
        original, degree = torch.empty_like(nodes), torch.empty_like(nodes)
        original[own], original[~own] = found.inner, found.halo
        degree[own], degree[~own] = found.degree, found.halo_degree
        return Nodes(original, none, degree, none)

    def _is_own(self, nodes: Tensor) -> Tensor:
        return owner_of(nodes, self.requests.ranges) == self.requests.transport.rank
