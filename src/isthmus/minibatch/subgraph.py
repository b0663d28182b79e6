"""Mini-batches in PyG's form: one subgraph, in which a node is expanded only at the hop that first reaches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.errors import InputError
from isthmus.kernels import Csr, Drawn, Spans
from isthmus.sample import NeighbourSampler, Numbering, Structure

TYPES = ("directional", "bidirectional", "induced")
STRATEGIES = ("uniform", "last")


@dataclass(frozen=True)
class Subgraph:
    """A batch of n nodes, seeds first, and e edges between them; nodes are local numbers of the structure."""

    nodes: Tensor  # int64 [n]
    row: Tensor  # int64 [e], sources, as places in `nodes`
    col: Tensor  # int64 [e], targets
    edges: Tensor  # int64 [e], numbers of the edges in the source
    nodes_per_hop: list[int] | None  # seeds, then new nodes of each hop; None for induced subgraphs
    edges_per_hop: list[int] | None
    tree: Tensor | None = None  # int64 [n]: the seed that a node was reached from, where each has a subgraph of its own


@dataclass(frozen=True)
class Times:
    """A structure whose rows are ordered by time: node or edge times that a batch must not look beyond."""

    structure: Structure
    of_edge: Tensor  # [edges], ascending within a row
    of_node: Tensor | None  # [nodes]; None: edges have times

    @staticmethod
    def of(structure: Structure, of_node: Tensor | None, of_edge: Tensor | None) -> Times:
        """Order the rows of a structure by the times of the neighbours, or of the edges as the source numbers them."""
        pattern, numbers = structure.pattern, structure.edge_ids
        assert numbers is not None
        if of_node is not None:
            time = of_node[pattern.indices.long()]
        else:
            assert of_edge is not None
            time = of_edge[numbers]
        order = time.argsort(stable=True)
        order = order[pattern.edge_rows[order].argsort(stable=True)]
        ordered = Csr(pattern.indptr, pattern.indices[order], pattern.num_cols)
        return Times(replace(structure, pattern=ordered, edge_ids=numbers[order]), time[order], of_node)

    def allowed(self, spans: Spans, limit: Tensor) -> Spans:
        """Return the edges of each span that are not later than its limit: a prefix, found by bisection."""
        low, high = torch.zeros_like(spans.degree), spans.degree.clone()
        while bool((low < high).any()):
            middle = (low + high) // 2
            early = (low < high) & (self.of_edge[(spans.begin + middle).clamp_max(len(self.of_edge) - 1)] <= limit)
            low, high = torch.where(early, middle + 1, low), torch.where(early | (low >= high), high, middle)
        return spans._replace(degree=low)


class Elsewhere(NamedTuple):
    """Neighbours that owners draw: ``draw(nodes, step, hop)``, with the numbers that edges have in the source."""

    num_nodes: int
    draw: Callable[[Tensor, int, int], Drawn]


class SubgraphSampler:
    """Draws the subgraphs of batches, keyed by (seed, step, hop, node), and by the seed node where each has its own."""

    def __init__(
        self,
        structure: Structure,
        sampler: NeighbourSampler,
        *,
        disjoint: bool = False,
        times: Times | None = None,
        strategy: str = "uniform",
        elsewhere: Elsewhere | None = None,
    ):
        if strategy not in STRATEGIES:
            raise InputError(f"unknown temporal_strategy {strategy!r}: use {' or '.join(STRATEGIES)}")
        self.structure = structure if times is None else times.structure
        self.sampler, self.disjoint, self.times, self.strategy = sampler, disjoint or times is not None, times, strategy
        self.elsewhere = elsewhere
        self.numbering = Numbering(structure.num_rows if elsewhere is None else elsewhere.num_nodes)

    def _neighbours(self, nodes: Tensor, step: int, hop: int) -> Drawn:
        """Draw neighbours of nodes (int32), here or at their owners; edges with their numbers in the source."""
        if self.elsewhere is not None:
            return self.elsewhere.draw(nodes, step, hop)
        drawn = self.sampler.draw_spans(self.structure, self.structure.spans(nodes), step, hop, edges=True)
        return drawn._replace(numbers=self.structure.edge_ids_of(nodes, drawn))

    def draw(self, seeds: Tensor, step: int, until: Tensor | None = None) -> Subgraph:
        """Return the subgraph of some seeds (int64, local numbers). ``until``: the time that each looks back from."""
        if self.disjoint:
            return self._trees(seeds, step, until)
        distinct, _ = _distinct(seeds)
        self.numbering.start(seeds[distinct].to(torch.int32))
        places = distinct  # where each numbered node stands in the batch
        found, frontier, at = _Found(), seeds, torch.arange(len(seeds))
        for hop in range(len(self.sampler.fanouts)):
            before = len(self.numbering.nodes)
            drawn = self._neighbours(frontier.to(torch.int32), step, hop)
            assert drawn.numbers is not None
            numbers = self.numbering.add(drawn.indptr, drawn.columns).indices.long()
            frontier = self.numbering.nodes[before:].long()
            places = torch.cat([places, torch.arange(len(frontier)) + before + len(seeds) - len(distinct)])
            found.add(places[numbers], at.repeat_interleave(drawn.indptr.diff()), drawn.numbers, len(frontier))
            at = places[before:]
        nodes = torch.cat([seeds, self.numbering.nodes[len(distinct) :].long()])
        return found.subgraph(nodes, len(seeds))

    def induced(self, nodes: Tensor) -> Subgraph:
        """Return all edges between some distinct nodes (int64, local numbers)."""
        self.numbering.start(nodes.to(torch.int32))
        every = NeighbourSampler((-1,))
        rows = nodes.to(torch.int32)
        drawn = every.draw_spans(self.structure, self.structure.spans(rows), 0, 0, edges=True)
        row, col = self.numbering.find(drawn.columns), torch.arange(len(nodes)).repeat_interleave(drawn.indptr.diff())
        inside = row >= 0
        edges = self.structure.edge_ids_of(rows, drawn)[inside]
        return Subgraph(nodes, row[inside], col[inside], edges, None, None)

    def _trees(self, seeds: Tensor, step: int, until: Tensor | None) -> Subgraph:
        """Return a subgraph for each seed, all in one. A node is known by (tree, node), so that no table serves."""
        count, found = self.structure.num_rows, _Found()
        keys = torch.arange(len(seeds)) * count + seeds
        if self.times is not None and until is None:
            if self.times.of_node is None:
                raise InputError("edges have times, but seed nodes have none: give input_time")
            until = self.times.of_node[seeds]
        begin = 0
        for hop in range(len(self.sampler.fanouts)):
            tree, rows = keys[begin:] // count, (keys[begin:] % count).to(torch.int32)
            spans = self.structure.spans(rows)._replace(ids=keys[begin:] + count)
            if self.times is not None:
                assert until is not None
                spans = self.times.allowed(spans, until[tree])
            drawn = self._drawn(spans, step, hop)
            counts = drawn.indptr.diff()
            met = tree.repeat_interleave(counts) * count + drawn.columns.long()
            at, before = torch.arange(begin, len(keys)).repeat_interleave(counts), len(keys)
            distinct, place = _distinct(torch.cat([keys, met]))
            keys, begin = torch.cat([keys, met])[distinct], before
            found.add(place[before:], at, self.structure.edge_ids_of(rows, drawn), len(keys) - before)
        return found.subgraph(keys % count, len(seeds), keys // count)

    def _drawn(self, spans: Spans, step: int, hop: int) -> Drawn:
        fanout = self.sampler.fanouts[hop]
        if self.times is not None and self.strategy == "last" and fanout >= 0:
            late = spans.degree.clamp_max(fanout)
            spans = spans._replace(begin=spans.begin + spans.degree - late, degree=late)
        return self.sampler.draw_spans(self.structure, spans, step, hop, edges=True)


class _Found:
    """The edges of a batch, hop by hop."""

    def __init__(self) -> None:
        self.row, self.col, self.edges = [], [], []  # type: tuple[list[Tensor], list[Tensor], list[Tensor]]
        self.nodes_per_hop: list[int] = []

    def add(self, row: Tensor, col: Tensor, edges: Tensor, new_nodes: int) -> None:
        self.row.append(row)
        self.col.append(col)
        self.edges.append(edges)
        self.nodes_per_hop.append(new_nodes)

    def subgraph(self, nodes: Tensor, num_seeds: int, tree: Tensor | None = None) -> Subgraph:
        per_hop = [len(row) for row in self.row]
        row, col, edges = (torch.cat(each) for each in (self.row, self.col, self.edges))
        return Subgraph(nodes, row, col, edges, [num_seeds, *self.nodes_per_hop], per_hop, tree)


def _distinct(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return where each distinct key stands first, ascending, and for every key its number in that order; int64."""
    _, inverse = keys.unique(return_inverse=True)
    count = int(inverse.max()) + 1 if len(keys) else 0
    first = torch.full((count,), len(keys)).scatter_reduce_(0, inverse, torch.arange(len(keys)), "amin")
    order = first.argsort()
    rank = torch.empty_like(order)
    rank[order] = torch.arange(count)
    return first[order], rank[inverse]
