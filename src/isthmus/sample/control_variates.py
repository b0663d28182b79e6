"""VR-GCN's batches: few neighbours of every node are drawn, and control variates make up for the others."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from isthmus.comm import Transport
from isthmus.errors import InputError
from isthmus.kernels import Csr
from isthmus.sample.blocks import Block, Blocks, Numbering
from isthmus.sample.joint import Scene
from isthmus.sample.neighbour_sampler import NeighbourSampler


@dataclass(frozen=True)
class ControlVariates:
    """Draws ``neighbours`` neighbours of every node at every hop, uniformly; -1: all of them."""

    neighbours: int = 2

    def __post_init__(self) -> None:
        if self.neighbours < -1:
            raise InputError(f"neighbours must be at least 0, or -1 for all, not {self.neighbours}")

    @property
    def sized(self) -> bool:
        return True

    def steps_per_epoch(self, nodes: int, labelled: int, size: int) -> int:
        return -(-labelled // size)

    def start(self, scene: Scene, transport: Transport) -> ControlledDraw:
        return ControlledDraw(scene, self.neighbours)


class ControlledDraw:
    """The draws of a run: functions of (seed, step, hop, node)."""

    def __init__(self, scene: Scene, neighbours: int):
        self.scene, self.at = scene, scene.seeds
        self.sampler = NeighbourSampler((neighbours,) * scene.layers, seed=scene.seed)
        self.numbering = Numbering(scene.structure.num_rows)

    def blocks(self, step: int) -> Blocks:
        structure = self.scene.structure
        found = self.sampler.blocks(structure, self.at(step), step, self.numbering)
        weighted = structure.weighted_degree[found.nodes] if self.scene.weighted else None
        return replace(found, weighted_degree=weighted)


def missed_edges(whole: Csr, block: Block, rows: Tensor, nodes: Tensor) -> tuple[Csr, Tensor, Tensor]:
    """Return the edges into some rows (int64) of a block with the weights by which a draw misses them.

    An edge of the graph that was drawn counts ``scale`` times in the block, another not at all: what is missing is 1
    minus that. Edges that miss nothing are left out. ``whole``: all edges of the graph into these rows, from nodes as
    ``nodes`` (int64) numbers those of the block. Returns the pattern, the weights (float64), and the places of the
    edges in ``whole``.
    """
    drawn, _ = block.csr.take(rows)
    count = whole.num_cols
    keys = whole.edge_rows * count + whole.indices
    taken = drawn.edge_rows * count + nodes[drawn.indices.long()]
    missing = 1.0 - torch.where(torch.isin(keys, taken), block.scale[rows][whole.edge_rows], 0.0)
    kept = missing != 0
    indptr = torch.cat([kept.new_zeros(1, dtype=torch.int64), kept.cumsum(0)])[whole.indptr]
    return Csr(indptr, whole.indices[kept], count), missing[kept], kept.nonzero().flatten()
