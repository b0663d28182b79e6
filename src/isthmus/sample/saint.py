"""GraphSAINT's batches: subgraphs of drawn nodes, edges or walks, whose edges and rows count by their chances."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Transport
from isthmus.errors import InputError
from isthmus.sample.joint import Scene, below, choose, column_norms
from isthmus.sample.subgraphs import Counts, Induced, Subgraphs

_SALT, _BEFORE = 0x5A17, 0x5A18  # of the draws of steps, and of those before the first
_UNIT = 1 << 20
KINDS = {
    "node": "nodes, by the squared norms of their columns of the propagation matrix",
    "edge": "edges, by 1/degree of both ends",
    "walk": "walks from random roots",
}
COVERAGE = 50.0


@dataclass(frozen=True)
class Saint:
    """Draws --batch-size nodes, edges or roots of walks with replacement; a batch is the subgraph of all nodes met.

    An edge u → v of a batch counts 1 / P(u is there, if v is), and a training node 1 / P(it is there). Of nodes and
    edges these chances have a closed form. With ``coverage`` above 0, and always of walks, they are counted in
    subgraphs drawn before the first step, until these have so many nodes for every node of the graph.
    """

    kind: str = "walk"
    length: int = 2
    coverage: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"unknown kind {self.kind!r} of subgraphs: use {', '.join(KINDS)}")
        if self.length < 1 or self.coverage < 0:
            raise InputError(
                f"length must be at least 1 and coverage at least 0, not {self.length} and {self.coverage:g}"
            )

    @property
    def sized(self) -> bool:
        return True

    def steps_per_epoch(self, nodes: int, labelled: int, size: int) -> int:
        met = {"node": 1, "edge": 2, "walk": self.length + 1}[self.kind] * size
        return max(1, -(-nodes // met))

    def start(self, scene: Scene, transport: Transport) -> SaintDraw:
        draws = {"node": NodeDraw, "edge": EdgeDraw, "walk": WalkDraw}
        return draws[self.kind](scene, self).begin()


class SaintDraw(Subgraphs):
    """The draws of one kind; ``order``: all nodes by their original ids, in which things to draw from are listed."""

    def __init__(self, scene: Scene, asked: Saint):
        super().__init__(scene)
        self.asked, self.order = asked, scene.ascending(torch.arange(scene.structure.num_rows))
        self._counted: tuple[Tensor, Tensor] = (self.order[:0], self.order[:0])

    def begin(self) -> SaintDraw:
        """Count chances, where they have no closed form or it is not asked for; return the draws."""
        if self.asked.coverage or self.asked.kind == "walk":
            self._counted = self._count()
        return self

    def drawn(self, stream: int) -> Tensor:
        """Return the nodes that the draws of a stream meet, int64, some of them several times."""
        raise NotImplementedError

    def chances(self, found: Induced) -> tuple[Tensor, Tensor]:
        """Return the probability that each node is in a batch, and that both ends of each edge are; float64."""
        of_nodes, of_edges = self._counted
        return of_nodes[found.nodes], of_edges[found.edges]

    def nodes(self, step: int) -> Tensor:
        return self.drawn(kernels.stream(_SALT, self.scene.seed, step)).unique()

    def counts(self, found: Induced) -> Counts:
        nodes, pairs = self.chances(found)
        return Counts(nodes[found.csr.edge_rows] / pairs, rows=1.0 / nodes[: found.seeds])

    def _count(self) -> tuple[Tensor, Tensor]:
        """Return the shares of subgraphs that have each node, and both ends of each edge; none is taken for 0."""
        structure, goal = self.scene.structure, (self.asked.coverage or COVERAGE) * self.scene.structure.num_rows
        nodes = torch.zeros(structure.num_rows, dtype=torch.float64)
        edges = torch.zeros(structure.pattern.num_edges, dtype=torch.float64)
        drawn = met = 0
        while met < goal:
            found = self.induced(self.drawn(kernels.stream(_BEFORE, self.scene.seed, drawn)).unique())
            nodes[found.nodes] += 1
            edges[found.edges] += 1
            drawn, met = drawn + 1, met + len(found.nodes)
        return nodes.clamp_min(1) / drawn, edges.clamp_min(1) / drawn


class NodeDraw(SaintDraw):
    """Nodes, drawn by the squared norms of their columns."""

    def __init__(self, scene: Scene, asked: Saint):
        super().__init__(scene, asked)
        self.weight = column_norms(scene.structure)
        self.cumulated = self.weight[self.order].cumsum(0)

    def drawn(self, stream: int) -> Tensor:
        return self.order[choose(stream, self.scene.size, self.cumulated)]

    def chances(self, found: Induced) -> tuple[Tensor, Tensor]:
        if self.asked.coverage:
            return super().chances(found)
        share = self.weight[found.nodes].double() / self.cumulated[-1]
        return _both(share, found, 0.0, self.scene.size)


class EdgeDraw(SaintDraw):
    """Edges, drawn by 1/degree of both ends; a node without any has an edge to itself."""

    def __init__(self, scene: Scene, asked: Saint):
        super().__init__(scene, asked)
        pattern, degree = scene.structure.pattern, scene.structure.degree
        part = _UNIT // degree.clamp_min(1)
        target, source = pattern.edge_rows, pattern.indices.long()
        weight = part[target] + part[source]
        self.touched = torch.zeros_like(degree).index_add_(0, target, weight).index_add_(0, source, weight)
        alone = scene.ascending((self.touched == 0).nonzero().flatten())
        self.touched[alone] = 2 * _UNIT
        rows, at = pattern.take(self.order)
        ends = torch.stack([self.order[rows.edge_rows], rows.indices.long()])
        self.ends = torch.cat([ends, alone.expand(2, -1)], dim=1)
        self.cumulated = torch.cat([weight[at], self.touched[alone]]).cumsum(0)
        # Edges both ways between two nodes, and parallel ones, draw the same pair.
        keys = torch.minimum(target, source) * len(degree) + torch.maximum(target, source)
        pair = keys.unique(return_inverse=True)[1]
        self.pairs = torch.zeros_like(pair).index_add_(0, pair, weight)[pair]

    def drawn(self, stream: int) -> Tensor:
        return self.ends[:, choose(stream, self.scene.size, self.cumulated)].flatten()

    def chances(self, found: Induced) -> tuple[Tensor, Tensor]:
        if self.asked.coverage:
            return super().chances(found)
        total = self.cumulated[-1]
        share, both = self.touched[found.nodes].double() / total, self.pairs[found.edges].double() / total
        return _both(share, found, both, self.scene.size)


class WalkDraw(SaintDraw):
    """Walks of ``length`` steps to random neighbours, from roots of which every node is as likely."""

    def drawn(self, stream: int) -> Tensor:
        pattern, walkers = self.scene.structure.pattern, torch.arange(self.scene.size)
        at = self.order[below(kernels.stream(stream, 0), walkers, torch.tensor(len(self.order)))]
        met = [at]
        for hop in range(1, self.asked.length + 1):
            degree = self.scene.degree_of(at)
            moves = degree > 0  # from a node without neighbours there is nowhere to go
            place = below(kernels.stream(stream, hop), walkers, degree.clamp_min(1)) + pattern.indptr[at]
            at = at.clone()
            at[moves] = pattern.indices[place[moves]].long()
            met.append(at)
        return torch.cat(met)


def _both(share: Tensor, found: Induced, pairs: Tensor | float, draws: int) -> tuple[Tensor, Tensor]:
    """Return the chances of nodes that one draw meets with probability ``share``, and of both ends of edges.

    ``pairs``: the probability that one draw meets both ends of an edge. P(both) is written as P(u) P(v) + P(neither) -
    P(not u) P(not v), so that small chances keep their digits.
    """
    target, source = found.csr.edge_rows, found.csr.indices.long()
    present, absent = -torch.expm1(draws * torch.log1p(-share)), (1 - share) ** draws
    apart = (1 - share[target]) * (1 - share[source])
    shift = (share[target] * share[source] - pairs) / apart
    more = absent[target] * absent[source] * torch.expm1(draws * torch.log1p(-shift))
    return present, present[target] * present[source] + torch.where(apart > 0, more, 0.0)
