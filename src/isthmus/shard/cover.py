"""The cover cut of a shard: an edge between two owners is summed at whichever end keeps the number of rows small.

For the edges that lead from worker j to worker i, some sources are *covered*: j sends their rows, and i sums over
their edges, as under an edge-cut. All other edges are *lent* to j, who sums over them and sends one row for each target
that they lead to. Every choice of sources is exact for a linear aggregation; a minimum vertex cover sends the fewest
rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Links, Transport, Where
from isthmus.kernels import Csr, Weights
from isthmus.shard.drawn import Pattern
from isthmus.shard.norm import Norm
from isthmus.shard.row_subset import taken
from isthmus.shard.shard import Shard

_WHERE = Where("cover", "setup", 0, "ids")


class Used(NamedTuple):
    """Those of some sums that are used, by position, and the rows that they belong to."""

    places: Tensor | None  # int64; None: all
    rows: Tensor  # int32


class Asked(NamedTuple):
    """The rows that any sum comes for, each once: links that count them, and which of them are computed."""

    links: Links
    used: Used


@dataclass(frozen=True)
class Sums:
    """The sums that workers make for each other, over edges that were lent to the owners of their sources.

    ``links``: worker q sums for my rows ``send_rows[q]``; ``mirror_counts[q]`` of my sums are for rows of q. They
    travel by the gather leg, and their gradients back by the scatter leg.
    """

    links: Links
    edges: Pattern  # [sums that I make, n]: from my own rows
    degree: Tensor  # [sums that I make], of the targets in the whole graph
    place: Tensor | None = None  # int32 [n]: of my rows among those that are computed, else -1; None: all are
    _used_of: dict[int, tuple[Links, list[Used]]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def turned(self) -> Pattern:
        """The transposed edges, [n, sums], without the many rows that have none."""
        turned = self.edges.turned()
        return Pattern(turned.csr.compact(), turned.weight)

    def target(self, name: str, norm: Norm) -> Tensor | None:
        """Return the target scales of the rows that I make sums for."""
        return Norm.of(name, self.degree, self.degree[:0], norm.dtype).target

    def towards(self, rows: Tensor, count: int) -> Sums:
        """Return the same sums where only ``rows`` (int64) of ``count`` are computed; others come, but are not used."""
        place = torch.full((count,), -1, dtype=torch.int32, device=rows.device)
        place[rows] = torch.arange(len(rows), dtype=torch.int32, device=rows.device)
        return replace(self, place=place)

    def add(self, arrived: Tensor, links: Links, out: Tensor) -> None:
        """Add the sums that came for my rows, laid out by worker as these links say, to the rows ``out``."""
        if id(links) not in self._used_of:
            self._used_of[id(links)] = links, [self._used(targets) for targets in links.send_rows]
        for (at, rows), part in zip(self._used_of[id(links)][1], links.boundary.split(arrived), strict=True):
            if len(rows):
                kernels.scatter_add_rows(out, rows, (part if at is None else part[at]).to(out.dtype))

    def gradients(self, grad: Tensor) -> tuple[Tensor, Links]:
        """Return the gradients of the sums that came for my rows, and their links, from those of my rows."""
        if self.place is None:
            return grad, self.links
        links, (places, rows) = self._asked
        block = grad.new_zeros(len(self.links.boundary_rows), grad.shape[1])
        block[places] = grad[rows.long()]
        return block, links

    def _used(self, targets: Tensor) -> Used:
        """Return which of the sums for these of my rows are used."""
        if self.place is None:
            return Used(None, targets)
        rows = self.place[targets.long()]
        places = (rows >= 0).nonzero().flatten()
        return Used(places, rows[places])

    @cached_property
    def _asked(self) -> Asked:
        every, counts = self.links.boundary_rows, self.links.boundary.counts
        numbers = torch.searchsorted(every, torch.cat(self.links.send_rows).long()).to(torch.int32)
        return Asked(replace(self.links, send_rows=list(numbers.split(counts))), self._used(every))


@dataclass(frozen=True)
class Cover:
    """The halo edges that lead to t rows, parted: those from covered halo nodes stay here, the others are lent."""

    covered: Tensor  # bool [h]
    halo: Pattern  # t × covered halo nodes
    links: Links  # of the covered halo nodes
    sums: Sums

    @property
    def rows(self) -> int:
        """The number of rows that this worker receives in one exchange: of halo nodes, and sums."""
        return self.links.num_mirrors + self.sums.links.boundary.ptr[-1]

    def towards(self, rows: Tensor) -> Cover:
        """Return the cover where only ``rows`` (int64) are computed; the same rows cross."""
        halo = taken(self.halo.csr, self.halo.weight, rows)
        return replace(self, halo=halo, sums=self.sums.towards(rows, self.halo.csr.num_rows))


class Covered(Shard):
    """A shard whose halo edges are parted by a cover: fewer halo nodes, and sums that come from other workers."""

    def __init__(self, edges: Shard, cover: Cover):
        """Take the inner edges of ``edges`` (the whole graph, or those to some of its rows) and the halo edges kept."""
        nodes = edges.all_nodes.with_halo(cover.covered)
        super().__init__(edges.inner, cover.halo.csr, cover.links, nodes, edges.symmetric)
        self.sums, self._of, self._kept = cover.sums, edges, cover.covered.nonzero().flatten()
        self.inner_weight, self.inner_out_weight = edges.inner_weight, edges.inner_out_weight
        if cover.halo.weight is not None:
            turned, self.halo_weight = cover.halo.turned(), cover.halo.weight
            self.halo_out, self.halo_out_weight = turned.csr, turned.weight

    @cached_property
    def inner_out(self) -> Csr:
        return self._of.inner_out

    @cached_property
    def lent_rows(self) -> Tensor:
        """My rows that sums for others are made of, int64."""
        return self.sums.edges.csr.indices.unique().long()

    @cached_property
    def leaving_rows(self) -> Tensor:
        """My rows that leave as they are or in a sum, int64."""
        return torch.cat([self.links.boundary_rows.long(), self.lent_rows]).unique()

    def norm(self, name: str, dtype: torch.dtype) -> Norm:
        if (name, dtype) not in self._norms:
            norm = self._of.norm(name, dtype).drawn(self._kept, None)
            self._norms[name, dtype] = replace(norm, sums=self.sums.target(name, norm))
        return self._norms[name, dtype]

    def sum_for_others(self, x: Tensor, norm: Norm, out: Tensor) -> None:
        """Make the sums over lent edges: out = sums · A_lent source · X; out [sums, F] is overwritten."""
        edges, weight = self.sums.edges.csr, self.sums.edges.weight
        kernels.aggregate(edges, x, Weights(norm.sums, norm.source, weight), out)

    def spread_from_others(self, grad: Tensor, norm: Norm, out: Tensor) -> None:
        """Apply the transpose of `sum_for_others`: out [n, F] += source · A_lentᵀ sums · grad."""
        edges, weight = self.sums.turned.csr, self.sums.turned.weight
        kernels.aggregate(edges, grad, Weights(norm.source, norm.sums, weight), out, accumulate=True)


def make_cover(whole: Shard, edges: Pattern, degree: Tensor, covered: Tensor, transport: Transport) -> Cover:
    """Part the halo edges t × h by the halo nodes that are covered (bool [h]), and lend the others to the owners.

    ``edges``: those of the whole graph, or of some of its rows; ``degree`` [t]: of the targets in the whole graph.
    Every worker calls it at the same time.
    """
    links, halo = whole.links, edges.csr
    kept = covered[halo.indices.long()]
    number = covered.cumsum(0, dtype=torch.int32) - 1
    counts = torch.bincount(halo.edge_rows[kept], minlength=halo.num_rows)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    sent = links.push(covered, transport, _WHERE).wait()
    return Cover(
        covered,
        Pattern(Csr(indptr, number[halo.indices[kept].long()], int(covered.sum())), _some(edges.weight, kept)),
        Links(
            [rows[flags] for rows, flags in zip(links.send_rows, sent, strict=True)],
            [int(flags.sum()) for flags in links.mirrors.split(covered)],
        ),
        _lend(whole, edges, degree, ~kept, transport),
    )


def _lend(whole: Shard, halo: Pattern, degree: Tensor, lent: Tensor, transport: Transport) -> Sums:
    """Tell owners the edges that they are to sum: of each target its degree, and the positions of its sources."""
    links = whole.links
    rows, cols, weight = halo.csr.edge_rows[lent], halo.csr.indices[lent], _some(halo.weight, lent)
    first = cols.new_tensor(links.mirrors.ptr)
    owner = torch.searchsorted(first, cols, right=True) - 1
    targets_of, about, places, weights = [], [], [], []
    for q in range(transport.size):
        mine = owner == q
        target, edges = torch.unique_consecutive(rows[mine], return_counts=True)
        targets_of.append(target.to(torch.int32))
        about.append(torch.stack([edges.double(), degree[target].double()], dim=1))
        places.append(cols[mine] - first[q])
        weights.append(cols[:0] if weight is None else weight[mine])
    sizes = [rows.new_tensor([len(a), len(p)]) for a, p in zip(about, places, strict=True)]
    heard = [n.tolist() for n in _swap(sizes, [rows.new_zeros(2) for _ in sizes], transport)]
    asked = _swap(about, [rows.new_zeros(targets, 2, dtype=torch.float64) for targets, _ in heard], transport)
    wanted = _swap(places, [cols.new_zeros(edges) for _, edges in heard], transport)
    lent_weight = None
    if weight is not None:
        lent_weight = torch.cat(_swap(weights, [weight.new_zeros(edges) for _, edges in heard], transport))
    table = torch.cat(asked)
    edges = torch.cat([sent[at.long()] for sent, at in zip(links.send_rows, wanted, strict=True)])
    indptr = torch.cat([rows.new_zeros(1), table[:, 0].long().cumsum(0)])
    lent_edges = Pattern(Csr(indptr, edges, whole.num_inner), lent_weight)
    return Sums(Links(targets_of, [len(part) for part in asked]), lent_edges, table[:, 1])


def _some(weight: Tensor | None, chosen: Tensor) -> Tensor | None:
    return None if weight is None else weight[chosen]


def _swap(send: list[Tensor], recv: list[Tensor], transport: Transport) -> list[Tensor]:
    transport.exchange(send, recv, _WHERE).wait()
    return recv
