"""Batches that are subgraphs: nodes are drawn, and all layers read the edges between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.kernels import Csr
from isthmus.sample.blocks import Block, Blocks, Numbering
from isthmus.sample.joint import Scene


@dataclass(frozen=True)
class Induced:
    """All edges of the graph between n nodes, of which the training nodes come first."""

    nodes: Tensor  # int64 [n], book ids
    seeds: int
    csr: Csr  # n × n
    edges: Tensor  # int64 [e], their places in the structure


class Counts(NamedTuple):
    """By how much the edges and rows of a subgraph count; None: as in the whole graph."""

    edges: Tensor | None = None  # float64 [e]
    degree: Tensor | None = None  # int64 [n], by which norms divide
    rows: Tensor | None = None  # float64 [seeds], in the loss


class Subgraphs:
    """The draws of subgraphs; a kind of them says which nodes a step has, and how edges and rows count."""

    def __init__(self, scene: Scene):
        self.scene = scene
        self.is_train = torch.zeros(scene.structure.num_rows, dtype=torch.bool)
        self.is_train[scene.train] = True
        self.numbering = Numbering(scene.structure.num_rows)
        self._last: tuple[int, Tensor] = (-1, scene.train[:0])

    def nodes(self, step: int) -> Tensor:
        """Return the nodes of a step, int64, distinct, in any order."""
        raise NotImplementedError

    def counts(self, found: Induced) -> Counts:
        """Return by how much edges and rows of a subgraph count."""
        raise NotImplementedError

    def at(self, step: int) -> Tensor:
        """Return the training nodes of a step."""
        nodes = self._nodes(step)
        return nodes[self.is_train[nodes]]

    def blocks(self, step: int) -> Blocks:
        """Return the subgraph of a step: every layer computes all of its nodes, the last one the training nodes."""
        found = self.induced(self._nodes(step))
        edges, degree, rows = self.counts(found)
        structure, nodes = self.scene.structure, found.nodes
        data = None if structure.data is None else structure.data[found.edges]
        block = Block(found.csr, torch.ones(len(nodes), dtype=torch.float64), edges, data=data)
        weighted = None
        if self.scene.weighted:
            weighted = structure.weighted_degree[nodes] if degree is None else _sums(block)
        return Blocks(
            nodes,
            self.scene.original[nodes],
            self.scene.degree_of(nodes) if degree is None else degree,
            (block,) * (self.scene.layers - 1) + (_first_rows(block, found.seeds),),
            found.seeds,
            rows,
            weighted,
        )

    def induced(self, nodes: Tensor) -> Induced:
        """Return the edges between some nodes (int64, distinct)."""
        train = self.is_train[nodes]
        nodes = torch.cat([nodes[train], nodes[~train]])
        self.numbering.start(nodes.to(torch.int32))
        every, at = self.scene.structure.pattern.take(nodes)
        column = self.numbering.find(every.indices)
        inside = column >= 0
        indptr = torch.cat([inside.new_zeros(1, dtype=torch.int64), inside.cumsum(0)])[every.indptr]
        csr = Csr(indptr, column[inside].to(torch.int32), len(nodes))
        return Induced(nodes, int(train.sum()), csr, at[inside])

    def _nodes(self, step: int) -> Tensor:
        if self._last[0] != step:
            self._last = step, self.scene.ascending(self.nodes(step))
        return self._last[1]


def _first_rows(block: Block, count: int) -> Block:
    indptr = block.csr.indptr[: count + 1]
    edges = slice(int(indptr[-1]))
    csr = Csr(indptr, block.csr.indices[edges], block.csr.num_cols)
    weight, data = (None if one is None else one[edges] for one in (block.weight, block.data))
    return Block(csr, block.scale[:count], weight, data=data)


def _sums(block: Block) -> Tensor:
    """Return the sum of what the edges of every row carry, float64 [n]."""
    assert block.data is not None
    sums = torch.zeros(block.csr.num_rows, dtype=torch.float64)
    return sums.index_add_(0, block.csr.edge_rows, block.data.reshape(-1).double())
