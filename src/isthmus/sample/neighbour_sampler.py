"""The sampler of mini-batches: the neighbours that a node reads at each hop of a step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.errors import InputError
from isthmus.kernels import Drawn, Spans
from isthmus.sample.blocks import Block, Blocks, Expansion, Numbering
from isthmus.sample.structure import Structure

_SALT = 0x5A6E
METHODS = {
    "uniform": "every neighbour as likely",
    "weighted": "in proportion to the weights of the edges",
    "labor": "LABOR-0: one random number per neighbour for all that read it, so that fewer distinct rows are read",
}


@dataclass(frozen=True)
class NeighbourSampler:
    """Draws ``fanouts[k]`` neighbours (-1: all) of every node at hop k; hop 0 is that of the seed nodes, as in PyG.

    What node v gets at hop k of step t is a function of (seed, t, k, v) and of its neighbours, in original ids: the
    same on any worker and thread, from a part or from the whole graph, in any order of requests.
    """

    fanouts: tuple[int, ...]
    method: str = "uniform"
    replace: bool = False
    seed: int = 0
    share_hops: bool = False
    """Of labor: use one random number per neighbour for all hops of a step. Fewer rows, but correlated layers."""

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InputError(f"unknown method {self.method!r} of drawing neighbours: use {', '.join(METHODS)}")
        if not self.fanouts or any(k < -1 for k in self.fanouts):
            raise InputError(f"fanouts {self.fanouts} must have one number per layer, each -1 (all) or at least 0")
        if self.replace and self.method == "labor":
            raise InputError("labor keeps each neighbour or not, so there is no replacement: leave replace out")
        if self.share_hops and self.method != "labor":
            raise InputError(f"share_hops is an option of labor, not of {self.method}: leave it out")

    def draw(self, structure: Structure, rows: Tensor, step: int, hop: int, *, edges: bool = False) -> Expansion:
        """Draw the neighbours that some rows (int32) of a structure get, as its columns (int32).

        Drawn edges come with what they carry, if the structure has that; ``edges``: with their numbers.
        """
        spans = structure.spans(rows)
        drawn = self.draw_spans(structure, spans, step, hop, edges=edges or structure.data is not None)
        ids = structure.edge_ids_of(rows, drawn) if edges else None
        data = None if structure.data is None else structure.data[drawn.numbers]
        if self.method == "weighted" and self.fanouts[hop] >= 0:
            ones = torch.ones(len(rows), dtype=torch.float64)
            return Expansion(drawn.indptr, drawn.columns, ones, self._weight(structure, rows, drawn), ids, data)
        return Expansion(drawn.indptr, drawn.columns, self._scale(drawn, spans.degree, hop), None, ids, data)

    def draw_spans(self, structure: Structure, spans: Spans, step: int, hop: int, *, edges: bool = False) -> Drawn:
        """Draw from some edges of a structure: whole rows, or those parts of them that may be read."""
        stream = kernels.stream(_SALT, self.seed, step, -1 if self.share_hops else hop, 0)  # 0: the relation
        indices, fanout = structure.pattern.indices, self.fanouts[hop]
        if self.method == "uniform" or fanout < 0:
            return kernels.draw_uniform(stream, indices, spans, fanout, self.replace, edges)
        if self.method == "labor":
            return kernels.draw_labor(stream, indices, spans, structure.original, fanout, edges)
        return kernels.draw_by_weight(stream, indices, spans, structure.weight, fanout, self.replace)

    def expand(self, structure: Structure, frontier: Tensor, step: int, hop: int, *, edges: bool = False) -> Expansion:
        """Draw the neighbours of the nodes of a frontier (int64 [m], book ids), in book ids."""
        found = self.draw(structure, structure.rows_of(frontier), step, hop, edges=edges)
        return found._replace(neighbours=kernels.gather_ids(structure.nodes, found.neighbours))

    def blocks(
        self, structure: Structure, seeds: Tensor, step: int, numbering: Numbering | None = None, *, edges: bool = False
    ) -> Blocks:
        """Return the blocks of a step for some seed nodes (int64, distinct), from the structure of a whole graph.

        ``numbering`` is reused from step to step.
        """
        if not structure.is_whole:
            raise InputError("this structure has only some of the nodes: expand the frontier at the owners, hop by hop")
        numbering = Numbering(structure.num_rows) if numbering is None else numbering
        numbering.start(structure.rows_of(seeds))
        layers: list[Block] = []
        for hop in range(len(self.fanouts)):
            frontier = numbering.nodes
            found = self.draw(structure, frontier, step, hop, edges=edges)
            csr = numbering.add(found.indptr, found.neighbours)
            layers.insert(0, Block(csr, found.scale, found.weight, found.edges, found.data))
        nodes = numbering.nodes
        _, degree = kernels.row_spans(structure.pattern, nodes)
        original = nodes.long() if structure.original is None else kernels.gather_ids(structure.original, nodes)
        return Blocks(nodes.long(), original, degree, tuple(layers), len(seeds))

    def _scale(self, drawn: Drawn, degree: Tensor, hop: int) -> Tensor:
        """Return 1 / (chance that an edge was drawn) for each row, float64 [m]."""
        if self.method == "labor":
            return (degree.double() / (self.fanouts[hop] if self.fanouts[hop] > 0 else torch.inf)).clamp_min(1.0)
        return degree.double() / drawn.indptr.diff().clamp_min(1)

    def _weight(self, structure: Structure, rows: Tensor, drawn: Drawn) -> Tensor:
        """Return 1 / (chance that an edge was drawn) for each edge, float64 [e].

        Without replacement an edge of weight w is among the smallest keys if its own is below the first key τ that was
        not drawn: with probability 1 - exp(-w τ).
        """
        assert drawn.numbers is not None
        own, counts = structure.weight[drawn.numbers].double(), drawn.indptr.diff()
        if drawn.threshold is not None:
            return -1.0 / torch.expm1(-own * torch.repeat_interleave(drawn.threshold, counts))
        share = structure.total_weight[rows.long()] / counts.clamp_min(1)
        return torch.repeat_interleave(share, counts) / own
