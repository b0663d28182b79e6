"""The neighbours that a draw misses: their kept rows stand in for them as control variates (VR-GCN)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from isthmus.kernels import Csr
from isthmus.minibatch.batch import Expanded, Missed
from isthmus.minibatch.joint import Joint, Share
from isthmus.minibatch.pairs import first_met
from isthmus.sample import Block
from isthmus.sample.control_variates import missed_edges
from isthmus.shard import Layer, Nodes, Pattern


class Controlled(Joint):
    """Expands a joint batch, and names for every layer of hidden rows the neighbours that its draw misses."""

    def expand(self, seeds: Tensor, step: int) -> Expanded:
        share = Share(self.draw.blocks(step), self.requests)
        missed = tuple(self._missed(block, share) for block in share.blocks.layers[1:])
        return replace(self.expanded(share, seeds), missed=missed)

    def _missed(self, block: Block, share: Share) -> Missed:
        """Return what my rows of a block miss: a layer that reads kept rows of neighbours, after my own."""
        structure, nodes = self.structure, share.blocks.nodes
        rows = share.mine[share.mine < block.csr.num_rows]
        whole, at = structure.pattern.take(nodes[rows])
        csr, weight, places = missed_edges(whole, block, rows, nodes)
        read, number = first_met(torch.cat([nodes[rows], csr.indices.long()]))
        pattern = Csr(csr.indptr, number[len(rows) :].to(torch.int32), len(read))
        original = read if structure.original is None else structure.original[read]
        none, indptr = read[:0], structure.pattern.indptr
        data = None if structure.data is None else structure.data[at[places]]
        degrees = (structure.weighted_degree[read], weight[:0]) if self.weighted else None
        about = Nodes(original, none, indptr[read + 1] - indptr[read], none)
        return Missed(read, Layer(Pattern(pattern, weight, data), about, weighted_degrees=degrees))
