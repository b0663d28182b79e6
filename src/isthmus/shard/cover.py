"""The cover cut of a shard: an edge between two owners is summed at whichever end keeps the number of rows small.

For the edges that lead from worker j to worker i, some sources are *covered*: j sends their rows, and i sums over
their edges, as under an edge-cut. All other edges are *lent* to j, who sums over them and sends one row for each target
that they lead to. Every choice of sources is exact for a linear aggregation; a minimum vertex cover sends the fewest
rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Links, Transport, Where
from isthmus.kernels import Csr, Weights
from isthmus.shard.norm import Norm
from isthmus.shard.shard import Shard

_WHERE = Where("cover", "setup", 0, "ids")


class Used(NamedTuple):
    """The sums of one worker that are used, by position, and the rows that they belong to."""

    places: Tensor  # int64
    rows: Tensor  # int32


@dataclass(frozen=True)
class Sums:
    """The sums that workers make for each other, over edges that were lent to the owners of their sources.

    ``links``: worker q sums for my rows ``send_rows[q]``; ``mirror_counts[q]`` of my sums are for rows of q. They
    travel by the gather leg, and their gradients back by the scatter leg.
    """

    links: Links
    edges: Csr  # [sums that I make, n]: from my own rows
    degree: Tensor  # [sums that I make], of the targets in the whole graph
    used: list[Used] | None = None  # by worker; None: all that come

    @cached_property
    def turned(self) -> Csr:
        """The transposed edges, [n, sums], without the many rows that have none."""
        return kernels.transpose(self.edges)[0].compact()

    def target(self, name: str, norm: Norm) -> Tensor | None:
        """Return the target scales of the rows that I make sums for."""
        return Norm.of(name, self.degree, self.degree[:0], norm.dtype).target

    def towards(self, rows: Tensor, count: int) -> Sums:
        """Return the same sums where only ``rows`` (int64) of ``count`` are computed; others come, but are not used."""
        place = torch.full((count,), -1, dtype=torch.int32, device=rows.device)
        place[rows] = torch.arange(len(rows), dtype=torch.int32, device=rows.device)
        placed = [place[targets.long()] for targets in self.links.send_rows]
        used = [(at >= 0).nonzero().flatten() for at in placed]
        return replace(self, used=[Used(at, rows[at]) for at, rows in zip(used, placed, strict=True)])

    def add(self, arrived: Tensor, out: Tensor) -> None:
        """Add the sums that came for my rows, laid out by worker, to the rows ``out``."""
        for q, part in enumerate(self.links.boundary.split(arrived)):
            at, rows = (None, self.links.send_rows[q]) if self.used is None else self.used[q]
            if len(rows):
                kernels.scatter_add_rows(out, rows, (part if at is None else part[at]).to(out.dtype))

    def gradients(self, grad: Tensor) -> tuple[Tensor, Links]:
        """Return the gradients of the sums that came for my rows, and their links, from those of my rows."""
        if self.used is None:
            return grad, self.links
        ends = self.links.boundary
        block = grad.new_zeros(ends.ptr[-1], grad.shape[1])
        for part, (at, rows) in zip(ends.split(block), self.used, strict=True):
            part[at] = grad[rows.long()]
        numbers = list(torch.arange(len(block), dtype=torch.int32, device=block.device).split(ends.counts))
        return block, replace(self.links, send_rows=numbers)


@dataclass(frozen=True)
class Cover:
    """The halo edges that lead to t rows, parted: those from covered halo nodes stay here, the others are lent."""

    covered: Tensor  # bool [h]
    halo: Csr  # t × covered halo nodes
    links: Links  # of the covered halo nodes
    sums: Sums

    def towards(self, rows: Tensor) -> Cover:
        """Return the cover where only ``rows`` (int64) are computed; the same rows cross."""
        halo = kernels.select_rows(self.halo, rows.to(torch.int32))
        return replace(self, halo=halo, sums=self.sums.towards(rows, self.halo.num_rows))


class Covered(Shard):
    """A shard whose halo edges are parted by a cover: fewer halo nodes, and sums that come from other workers."""

    def __init__(self, edges: Shard, cover: Cover):
        """Take the inner edges of ``edges`` (the whole graph, or those to some of its rows) and the halo edges kept."""
        nodes = edges.all_nodes.with_halo(cover.covered)
        super().__init__(edges.inner, cover.halo, cover.links, nodes, edges.symmetric)
        self.sums, self._of, self._kept = cover.sums, edges, cover.covered.nonzero().flatten()

    @cached_property
    def inner_out(self) -> Csr:
        return self._of.inner_out

    def norm(self, name: str, dtype: torch.dtype) -> Norm:
        if (name, dtype) not in self._norms:
            norm = self._of.norm(name, dtype).drawn(self._kept, None)
            self._norms[name, dtype] = replace(norm, sums=self.sums.target(name, norm))
        return self._norms[name, dtype]

    def sum_for_others(self, x: Tensor, norm: Norm, out: Tensor) -> None:
        """Make the sums over lent edges: out = sums · A_lent source · X; out [sums, F] is overwritten."""
        kernels.aggregate(self.sums.edges, x, Weights(norm.sums, norm.source), out)

    def spread_from_others(self, grad: Tensor, norm: Norm, out: Tensor) -> None:
        """Apply the transpose of `sum_for_others`: out [n, F] += source · A_lentᵀ sums · grad."""
        kernels.aggregate(self.sums.turned, grad, Weights(norm.source, norm.sums), out, accumulate=True)


def make_cover(whole: Shard, halo: Csr, degree: Tensor, covered: Tensor, transport: Transport) -> Cover:
    """Part the halo edges t × h by the halo nodes that are covered (bool [h]), and lend the others to the owners.

    ``halo``: those of the whole graph, or of some of its rows; ``degree`` [t]: of the targets in the whole graph. Every
    worker calls it at the same time.
    """
    links = whole.links
    kept = covered[halo.indices.long()]
    number = covered.cumsum(0, dtype=torch.int32) - 1
    counts = torch.bincount(halo.edge_rows[kept], minlength=halo.num_rows)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    sent = links.push(covered, transport, _WHERE).wait()
    return Cover(
        covered,
        Csr(indptr, number[halo.indices[kept].long()], int(covered.sum())),
        Links(
            [rows[flags] for rows, flags in zip(links.send_rows, sent, strict=True)],
            [int(flags.sum()) for flags in links.mirrors.split(covered)],
        ),
        _lend(whole, halo, degree, ~kept, transport),
    )


def _lend(whole: Shard, halo: Csr, degree: Tensor, lent: Tensor, transport: Transport) -> Sums:
    """Tell owners the edges that they are to sum: of each target its degree, and the positions of its sources."""
    links = whole.links
    rows, cols = halo.edge_rows[lent], halo.indices[lent]
    first = cols.new_tensor(links.mirrors.ptr)
    owner = torch.searchsorted(first, cols, right=True) - 1
    targets_of, about, places = [], [], []
    for q in range(transport.size):
        mine = owner == q
        target, edges = torch.unique_consecutive(rows[mine], return_counts=True)
        targets_of.append(target.to(torch.int32))
        about.append(torch.stack([edges, degree[target].to(torch.int64)], dim=1))
        places.append(cols[mine] - first[q])
    sizes = [rows.new_tensor([len(a), len(p)]) for a, p in zip(about, places, strict=True)]
    heard = [n.tolist() for n in _swap(sizes, [rows.new_zeros(2) for _ in sizes], transport)]
    asked = _swap(about, [rows.new_zeros(targets, 2) for targets, _ in heard], transport)
    wanted = _swap(places, [cols.new_zeros(edges) for _, edges in heard], transport)
    table = torch.cat(asked)
    edges = torch.cat([sent[at.long()] for sent, at in zip(links.send_rows, wanted, strict=True)])
    indptr = torch.cat([table.new_zeros(1), table[:, 0].cumsum(0)])
    return Sums(Links(targets_of, [len(part) for part in asked]), Csr(indptr, edges, whole.num_inner), table[:, 1])


def _swap(send: list[Tensor], recv: list[Tensor], transport: Transport) -> list[Tensor]:
    transport.exchange(send, recv, _WHERE).wait()
    return recv
