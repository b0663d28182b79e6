"""Batches apart: every worker expands its own seed nodes, and computes every node that it draws."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.comm import Where
from isthmus.kernels import Csr
from isthmus.minibatch.batch import Expanded
from isthmus.minibatch.requests import Requests
from isthmus.minibatch.rows import Rows
from isthmus.partition.part import Part
from isthmus.sample import Block, Expansion, NeighbourSampler, Numbering, Structure
from isthmus.shard import Layer, Nodes, Pattern
from isthmus.shard.load import as_tensor


class Here:
    """Expands seed nodes by the edges of all parts, which this worker has read: nobody is asked."""

    def __init__(self, sampler: NeighbourSampler, structure: Structure, weighted: bool = False):
        """``weighted``: every edge counts by the weight that it carries."""
        self.sampler, self.structure, self.weighted = sampler, structure, weighted
        self.numbering = Numbering(structure.num_rows)

    def expand(self, seeds: Tensor, step: int) -> Expanded:
        drawn = self.sampler.blocks(self.structure, seeds, step, self.numbering)
        assert drawn.degree is not None, "the structure of a whole graph knows all degrees"
        return self.expanded(drawn.layers, drawn.nodes, drawn.original, drawn.degree)

    def neighbours(self, frontier: Tensor, step: int, hop: int, sampler: NeighbourSampler | None = None) -> Expansion:
        """Draw neighbours for the nodes of a frontier (int64 [m], book ids), by another sampler if one is given."""
        return (sampler or self.sampler).expand(self.structure, frontier, step, hop)

    def looks_at(self, hop: int) -> float:
        """Return how many neighbours of a node a draw of this hop looks at, on average."""
        degree = self.structure.pattern.num_edges / max(self.structure.num_rows, 1)
        fanout = self.sampler.fanouts[hop]
        return degree if fanout < 0 or self.sampler.method != "uniform" else min(fanout, degree)

    def expanded(self, blocks: tuple[Block, ...], nodes: Tensor, original: Tensor, degree: Tensor) -> Expanded:
        """Return blocks as a batch; ``nodes``: book ids of the batch's nodes, int64 [n]."""
        weighted = self.structure.weighted_degree[nodes] if self.weighted else None
        return Expanded(nodes, layers_of(blocks, original, degree, weighted))


class AtOwners:
    """Expands seed nodes hop by hop by asking the owners of the nodes: a worker needs the edges of its own part alone.

    Owners are asked for the neighbours of every frontier, with what the drawn edges carry, and at the end for the
    original ids and degrees of all nodes.
    """

    def __init__(
        self, sampler: NeighbourSampler, structure: Structure, requests: Requests, own: Part, weighted: bool = False
    ):
        """``structure``: of this worker's part ``own``. ``weighted``: every edge counts by the weight it carries."""
        self.sampler, self.structure, self.requests = sampler, structure, requests
        self.part, self.weighted = own, weighted
        about = [as_tensor(own.nodes), as_tensor(own.degree)]
        if weighted:
            about.append(structure.weighted_degree.view(torch.int64))  # its bits
        self.about = Rows(torch.stack(about, dim=1), requests)
        self.numbering = Numbering(int(requests.ranges[-1]))

    def expand(self, seeds: Tensor, step: int) -> Expanded:
        self.numbering.start(seeds)
        blocks: list[Block] = []
        for hop in range(len(self.sampler.fanouts)):
            drawn = self.neighbours(self.numbering.nodes, step, hop)
            csr = self.numbering.add(drawn.indptr, drawn.neighbours)
            blocks.insert(0, Block(csr, drawn.scale, drawn.weight, data=drawn.data))
        nodes = self.numbering.nodes.clone()
        about = self.about.pull(nodes, step, "ids and degrees").t().contiguous()
        weighted = about[2].view(torch.float64) if len(about) > 2 else None
        return Expanded(nodes, layers_of(tuple(blocks), about[0], about[1], weighted))

    def neighbours(self, frontier: Tensor, step: int, hop: int, sampler: NeighbourSampler | None = None) -> Expansion:
        """Draw neighbours for the nodes of a frontier (int64 [m], book ids), each at its owner."""
        sampler = sampler or self.sampler
        where, requests = Where(f"hop {hop}", "sample", step, "ids"), self.requests
        asked = requests.ask(frontier, where)
        drawn = [sampler.expand(self.structure, rows.long() + requests.first, step, hop) for rows in asked.theirs]
        counts = asked.mine.counts
        sizes = requests.answer([one.indptr.diff() for one in drawn], counts, where)
        edges = [int(part.sum()) for part in sizes.split(counts)]
        scale = requests.answer([one.scale for one in drawn], counts, where)
        neighbours = requests.answer([one.neighbours for one in drawn], edges, where)
        weights = [one.weight for one in drawn if one.weight is not None]
        weight = requests.answer(weights, edges, where) if weights else None
        carried = [one.data for one in drawn if one.data is not None]
        data = requests.answer(carried, edges, where._replace(kind="features")) if carried else None
        indptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        back = torch.argsort(asked.mine.order)
        found, at = Csr(indptr, neighbours, 0).take(back)
        weight, data = (None if one is None else one[at] for one in (weight, data))
        return Expansion(found.indptr, found.indices, scale[back], weight, data=data)


def layers_of(
    blocks: tuple[Block, ...], original: Tensor, degree: Tensor, weighted: Tensor | None = None
) -> tuple[Layer, ...]:
    """Return blocks as layers whose rows are all here; original ids and degrees are those of the batch's nodes.

    ``weighted``: their weighted degrees, float64 [n], where edges count by their weights.
    """
    none, layers = original[:0], []
    for block in blocks:
        s = block.csr.num_cols
        nodes, pattern = Nodes(original[:s], none, degree[:s], none), Pattern(block.csr, block.weight, block.data)
        degrees = None if weighted is None else (weighted[:s], weighted[:0])
        layers.append(Layer(pattern, nodes, block.scale, weighted_degrees=degrees))
    return tuple(layers)
