"""A worker's share of a joint batch that all workers draw alike: the rows of the nodes that it owns."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.comm import Links
from isthmus.kernels import Csr
from isthmus.minibatch.batch import Expanded
from isthmus.minibatch.requests import Requests
from isthmus.minibatch.seeds import owner_of
from isthmus.minibatch.together import some_edges
from isthmus.sample import Block, Blocks
from isthmus.sample.joint import JointDraw, Scene
from isthmus.shard import Layer, Nodes, Pattern


class Joint:
    """Expands the seed nodes of a step by a draw that is the same everywhere; every node is computed by its owner.

    Nobody is asked: both ends of a link know the whole batch. Hidden rows of other workers are read over links made for
    this batch; the input layer reads rows that never change, which are pulled ahead.
    """

    def __init__(self, scene: Scene, draw: JointDraw, requests: Requests):
        self.draw, self.requests = draw, requests
        self.structure, self.weighted = scene.structure, scene.weighted

    def expand(self, seeds: Tensor, step: int) -> Expanded:
        """Return my share of a step; ``seeds`` are those of its seed nodes that are mine."""
        return self.expanded(Share(self.draw.blocks(step), self.requests), seeds)

    def expanded(self, share: Share, seeds: Tensor) -> Expanded:
        """Return a share of a batch as layers."""
        blocks, layers = share.blocks, [share.input_layer()]
        for block, before in zip(blocks.layers[1:], blocks.layers, strict=False):
            again = block is before and len(layers) > 1
            layers.append(layers[-1] if again else share.layer(block))
        counts = None if blocks.counts is None else blocks.counts[share.own[: blocks.num_seeds]]
        assert layers[-1].num_inner == len(seeds), "the draw has the seed nodes of its order"
        return Expanded(blocks.nodes[share.read], tuple(layers), counts)


class Share:
    """The share of one worker; nodes are their places in the batch."""

    def __init__(self, blocks: Blocks, requests: Requests):
        self.blocks, self.owner = blocks, owner_of(blocks.nodes, requests.ranges)
        self.rank, self.workers = requests.transport.rank, requests.transport.size
        self.own = self.owner == self.rank
        self.number = self.own.cumsum(0) - 1  # of my nodes among mine
        self.mine = self.own.nonzero().flatten()
        self.read = self.mine
        """The nodes whose input rows I read: mine, then others."""

    def input_layer(self) -> Layer:
        """Return the layer that reads input rows, all of which are pulled."""
        block = self.blocks.layers[0]
        pattern, scale = self._rows(block)
        columns = pattern.csr.indices.long()
        here = self.mine[self.mine < block.csr.num_cols]
        others = columns[~self.own[columns]].unique()
        self.read = torch.cat([here, others])
        number = self.number.clone()
        number[others] = len(here) + torch.arange(len(others))
        csr = Csr(pattern.csr.indptr, number[columns].to(torch.int32), len(self.read))
        about, degrees = self._about(self.read, others[:0])
        return Layer(Pattern(csr, pattern.weight, pattern.data), about, scale, weighted_degrees=degrees)

    def layer(self, block: Block) -> Layer:
        """Return a layer that reads hidden rows, those of other workers over links."""
        pattern, scale = self._rows(block)
        columns, count = pattern.csr.indices.long(), len(self.owner)
        own = self.own[columns]
        keys, column = (self.owner[columns] * count + columns)[~own].unique(return_inverse=True)  # grouped by owner
        halo, here = keys % count, self.mine[self.mine < block.csr.num_cols]
        before = torch.cat([own.new_zeros(1, dtype=torch.int64), own.cumsum(0)])[pattern.csr.indptr]
        inner = Csr(before, self.number[columns[own]].to(torch.int32), len(here))
        outer = Csr(pattern.csr.indptr - before, column.to(torch.int32), len(halo))
        about, degrees = self._about(here, halo)
        links = Links(self._sent(block), torch.bincount(keys // count, minlength=self.workers).tolist())
        return Layer(some_edges(pattern, own, inner), about, scale, some_edges(pattern, ~own, outer), links, degrees)

    def _rows(self, block: Block) -> tuple[Pattern, Tensor]:
        """Return the rows of a block that are mine, and how often their neighbours count."""
        rows = self.mine[self.mine < block.csr.num_rows]
        return Pattern(block.csr, block.weight, block.data).of_rows(rows), block.scale[rows]

    def _sent(self, block: Block) -> list[Tensor]:
        """Return for every worker my rows that it reads in this layer, ascending by their place in the batch."""
        count, columns = len(self.owner), block.csr.indices.long()
        reader = self.owner[block.csr.edge_rows]
        read = self.own[columns] & (reader != self.rank)
        keys = (reader * count + columns)[read].unique()
        counts = torch.bincount(keys // count, minlength=self.workers).tolist()
        return list(self.number[keys % count].to(torch.int32).split(counts))

    def _about(self, here: Tensor, halo: Tensor) -> tuple[Nodes, tuple[Tensor, Tensor] | None]:
        """Return ids and degrees of nodes here and in the halo, and their weighted degrees, if edges have weights."""
        original, degree, weighted = self.blocks.original, self.blocks.degree, self.blocks.weighted_degree
        assert degree is not None, "a joint batch knows all degrees"
        about = Nodes(original[here], original[halo], degree[here], degree[halo])
        return about, None if weighted is None else (weighted[here], weighted[halo])
