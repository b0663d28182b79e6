"""Batches apart: every worker expands its own seed nodes, and computes every node that it draws."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.comm import Where
from isthmus.kernels import Csr
from isthmus.minibatch.batch import Expanded
from isthmus.minibatch.requests import Requests
from isthmus.minibatch.rows import Rows
from isthmus.sample import Block, Expansion, NeighbourSampler, Numbering, Structure
from isthmus.shard import Layer, Nodes, Pattern


class Here:
    """Expands seed nodes by the edges of all parts, which this worker has read: nobody is asked."""

    def __init__(self, sampler: NeighbourSampler, structure: Structure):
        self.sampler, self.structure = sampler, structure
        self.numbering = Numbering(structure.num_rows)

    def expand(self, seeds: Tensor, step: int) -> Expanded:
        drawn = self.sampler.blocks(self.structure, seeds, step, self.numbering)
        assert drawn.degree is not None, "the structure of a whole graph knows all degrees"
        return Expanded(drawn.nodes, layers_of(drawn.layers, drawn.original, drawn.degree))


class AtOwners:
    """Expands seed nodes hop by hop by asking the owners of the nodes: a worker needs the edges of its own part alone.

    Owners are asked for the neighbours of every frontier, and at the end for the original ids and degrees of all nodes.
    """

    def __init__(self, sampler: NeighbourSampler, structure: Structure, requests: Requests, about: Rows):
        """``structure``: of this worker's part. ``about``: original id and degree of every node, int64 [n, 2]."""
        self.sampler, self.structure, self.requests, self.about = sampler, structure, requests, about
        self.numbering = Numbering(int(requests.ranges[-1]))

    def expand(self, seeds: Tensor, step: int) -> Expanded:
        self.numbering.start(seeds)
        blocks: list[Block] = []
        for hop in range(len(self.sampler.fanouts)):
            drawn = self.neighbours(self.numbering.nodes, step, hop)
            csr = self.numbering.add(drawn.indptr, drawn.neighbours)
            blocks.insert(0, Block(csr, drawn.scale, drawn.weight))
        nodes = self.numbering.nodes.clone()
        original, degree = self.about.pull(nodes, step, "ids and degrees").unbind(1)
        return Expanded(nodes, layers_of(tuple(blocks), original.contiguous(), degree.contiguous()))

    def neighbours(self, frontier: Tensor, step: int, hop: int) -> Expansion:
        """Draw neighbours for the nodes of a frontier (int64 [m], book ids), each at its owner."""
        where, requests = Where(f"hop {hop}", "sample", step, "ids"), self.requests
        asked = requests.ask(frontier, where)
        drawn = [self.sampler.expand(self.structure, rows.long() + requests.first, step, hop) for rows in asked.theirs]
        counts = asked.mine.counts
        sizes = requests.answer([one.indptr.diff() for one in drawn], counts, where)
        edges = [int(part.sum()) for part in sizes.split(counts)]
        scale = requests.answer([one.scale for one in drawn], counts, where)
        neighbours = requests.answer([one.neighbours for one in drawn], edges, where)
        weights = [one.weight for one in drawn if one.weight is not None]
        weight = requests.answer(weights, edges, where) if len(weights) == len(drawn) else None
        indptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        back = torch.argsort(asked.mine.order)
        found, at = Csr(indptr, neighbours, 0).take(back)
        return Expansion(found.indptr, found.indices, scale[back], None if weight is None else weight[at])


def layers_of(blocks: tuple[Block, ...], original: Tensor, degree: Tensor) -> tuple[Layer, ...]:
    """Return blocks as layers whose rows are all here; original ids and degrees are those of the batch's nodes."""
    none, layers = original[:0], []
    for block in blocks:
        s = block.csr.num_cols
        nodes = Nodes(original[:s], none, degree[:s], none)
        layers.append(Layer(Pattern(block.csr, block.weight), nodes, block.scale))
    return tuple(layers)
