"""Batches layer by layer: every layer of a batch draws some nodes, which all nodes of the layer above read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Transport
from isthmus.errors import InputError
from isthmus.kernels import Csr
from isthmus.sample.blocks import Block, Blocks, Numbering
from isthmus.sample.joint import Scene, choose, column_norms, squared_entries

_SALT = 0x1AD1


@dataclass(frozen=True)
class LayerWise:
    """Draws ``nodes`` nodes for every layer, with replacement and by the squared norms of their columns of P.

    A node that was drawn c times counts c / (nodes · its probability) times in every row that reads it. Where there are
    no more nodes to draw from, all are taken, once. ``dependent``: columns are those of the rows of the layer above, so
    only nodes that it reads are drawn (LADIES); else those of the whole matrix (FastGCN). ``renormalised``: drawn
    neighbours of a node count as many times in sum as it has neighbours.
    """

    nodes: int = 512
    dependent: bool = True
    renormalised: bool = False

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise InputError(f"layer_nodes must be at least 1, not {self.nodes}")

    @property
    def sized(self) -> bool:
        return True

    def steps_per_epoch(self, nodes: int, labelled: int, size: int) -> int:
        return -(-labelled // size)

    def start(self, scene: Scene, transport: Transport) -> LayerDraw:
        return LayerDraw(scene, self)


class Picked(NamedTuple):
    """Nodes that were drawn, ascending, and how often a row of each counts."""

    nodes: Tensor  # int64 [k]
    counts: Tensor  # float64 [k]


class LayerDraw:
    """The draws of every layer of every step: functions of (seed, step, hop) and of the layer above."""

    def __init__(self, scene: Scene, asked: LayerWise):
        self.scene, self.asked, self.at = scene, asked, scene.seeds
        self.numbering = Numbering(scene.structure.num_rows)
        self.every = scene.ascending(torch.arange(scene.structure.num_rows))
        self.norms = scene.train[:0] if asked.dependent else column_norms(scene.structure)[self.every]

    def blocks(self, step: int) -> Blocks:
        """Return the batch of a step; a layer reads the drawn nodes, and the own rows of those that it computes."""
        structure, seeds, layers = self.scene.structure, self.at(step), list[Block]()
        self.numbering.start(seeds.to(torch.int32))
        for hop in range(self.scene.layers):
            frontier = self.numbering.nodes.long()
            rows, at = structure.pattern.take(frontier)
            picked = self.pick(frontier, rows, kernels.stream(_SALT, self.scene.seed, step, hop))
            layers.insert(0, self._block(rows, at, picked))
        nodes = self.numbering.nodes.long()
        weighted = structure.weighted_degree[nodes] if self.scene.weighted else None
        about = self.scene.original[nodes], self.scene.degree_of(nodes)
        return Blocks(nodes, *about, tuple(layers), len(seeds), weighted_degree=weighted)

    def pick(self, frontier: Tensor, rows: Csr, stream: int) -> Picked:
        """Draw nodes for a layer above (int64 [m]), whose rows of the graph are ``rows``."""
        nodes, norms = self._columns(frontier, rows) if self.asked.dependent else (self.every, self.norms)
        count = self.asked.nodes
        if len(nodes) <= count:
            return Picked(nodes.sort().values, torch.ones(len(nodes), dtype=torch.float64))
        cumulated = norms.cumsum(0)
        chosen, times = choose(stream, count, cumulated).unique(return_counts=True)
        counts = times * cumulated[-1].double() / (count * norms[chosen].double())
        found, order = nodes[chosen].sort()
        return Picked(found, counts[order])

    def _columns(self, frontier: Tensor, rows: Csr) -> tuple[Tensor, Tensor]:
        """Return the nodes that a layer reads, by their original ids, and the squared norms of their columns."""
        sources = rows.indices.long()
        terms = squared_entries(self.scene.degree_of(frontier)[rows.edge_rows], self.scene.degree_of(sources))
        nodes, place = sources.unique(return_inverse=True)
        norms = torch.zeros_like(nodes).index_add_(0, place, terms)
        order = torch.argsort(self.scene.original[nodes])
        return nodes[order], norms[order]

    def _block(self, rows: Csr, at: Tensor, picked: Picked) -> Block:
        """Return the edges from drawn nodes; ``at``: the places of the rows' edges in the structure."""
        sources, data = rows.indices.long(), self.scene.structure.data
        place = torch.searchsorted(picked.nodes, sources).clamp_max(max(len(picked.nodes) - 1, 0))
        kept = picked.nodes[place] == sources if len(picked.nodes) else sources < 0
        indptr = torch.cat([kept.new_zeros(1, dtype=torch.int64), kept.cumsum(0)])[rows.indptr]
        weight = picked.counts[place[kept]]
        if self.asked.renormalised:
            target, all_of = rows.edge_rows[kept], rows.indptr.diff().double()
            weight = weight * (all_of / torch.zeros_like(all_of).index_add_(0, target, weight))[target]
        csr = self.numbering.add(indptr, rows.indices[kept])
        ones = torch.ones(rows.num_rows, dtype=torch.float64)
        return Block(csr, ones, weight, data=None if data is None else data[at[kept]])
