"""The shard of a vertex-cut: every edge lives on one worker, and a node has a replica wherever it has an edge.

One replica, at the node's owner, is its master; the others are mirrors. A model computes rows of all replicas here,
the n masters first, then the h mirrors. An aggregation sums over the edges that are here, gathers the sums of mirrors
at their masters, and scatters the totals, so that all replicas of a node hold the same row again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import FORWARD, SCATTER, Links, Transport, Where
from isthmus.kernels import Csr, Weights
from isthmus.partition.border import READ, SUMMED
from isthmus.partition.part import Part
from isthmus.shard.drawn import Pattern
from isthmus.shard.load import as_tensor
from isthmus.shard.norm import Norm
from isthmus.shard.shard import Nodes, Shard, after_loops


class Leg(NamedTuple):
    """The mirrors that take part in a leg: those with edges that begin with them here, or those with edges to them."""

    links: Links
    mirrors: Tensor | None = None  # int64: their places among all mirrors; None: all of them

    @staticmethod
    def of(links: Links, here: Tensor, there: list[Tensor]) -> Leg:
        """Take some of the mirrors (bool [h]) and, of each other worker, those of my rows (bool)."""
        counts = [int(flags.sum()) for flags in links.mirrors.split(here)]
        rows = [at[flags] for at, flags in zip(links.send_rows, there, strict=True)]
        return Leg(Links(rows, counts), None if here.all() else here.nonzero().flatten())


@dataclass(frozen=True)
class NeededReplicas:
    """The masters that the loss reads, and the mirrors of such masters: only these take part in the last gather."""

    rows: Tensor  # int64 [m]: masters
    mirrors: Tensor  # int64 [k]: positions among the mirrors
    links: Links  # rows are counted among the m
    summed: Leg  # of the mirrors that edges lead to

    @staticmethod
    def of(whole: VertexShard, rows: Tensor, transport: Transport) -> NeededReplicas:
        """Tell the mirrors of these masters that they are needed; every worker does so at the same time."""
        place = torch.full((whole.num_owned,), -1, dtype=torch.int32, device=rows.device)
        place[rows] = torch.arange(len(rows), dtype=torch.int32, device=rows.device)
        where = Where("rows that are read", "setup", 0, "ids")
        needed = whole.links.pull((place >= 0).to(torch.uint8), transport, where).bool()
        sent = [place[boundary.long()] for boundary in whole.links.send_rows]
        asked = [at >= 0 for at in sent]
        links = Leg.of(replace(whole.links, send_rows=sent), needed, asked).links
        there = [legs[flags] for legs, flags in zip(whole.legs.there, asked, strict=True)]
        summed = Leg.of(links, *_has(SUMMED, whole.legs.here[needed], there))
        return NeededReplicas(rows, needed.nonzero().flatten(), links, summed)

    def links_of(self, edges: Shard) -> Links:
        """Return the links of the needed rows."""
        return self.links


class Legs(NamedTuple):
    """The legs of mirrors, uint8: `READ`, `SUMMED` or both."""

    here: Tensor  # [h]
    there: list[Tensor]  # per other worker: those of its mirrors of my rows


def _has(leg: int, here: Tensor, there: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Return which mirrors have a leg, bool, here and elsewhere."""
    return here & leg != 0, [legs & leg != 0 for legs in there]


class VertexShard(Shard):
    """All edges of one worker under a vertex-cut, N × N between its n masters and h mirrors; N = n + h."""

    replicated = True

    def __init__(self, local: Pattern, masters: int, links: Links, nodes: Tensor, degree: Tensor, legs: Legs):
        nothing, data = Csr(torch.zeros_like(local.csr.indptr), local.csr.indices[:0], 0), local.data
        carried = None if data is None else (data, data[:0])
        super().__init__(local.csr, nothing, links, Nodes(nodes, nodes[:0], degree, degree[:0]), False, carried)
        self.masters, self.halo_nodes = masters, nodes[masters:]
        self.legs = legs
        self.read, self.summed = (Leg.of(links, *_has(leg, *legs)) for leg in (READ, SUMMED))
        self._replicas: dict[tuple[bool, int], Replicas] = {}

    @staticmethod
    def of(part: Part, to_masters: Shard) -> VertexShard:
        """Return the shard of a vertex-cut part, of which ``to_masters`` has the edges to masters alone."""
        assert part.mirror_indptr is not None, "only vertex-cuts have edges into mirrors"
        assert part.mirror_indices is not None, "only vertex-cuts have edges into mirrors"
        assert part.halo_legs is not None, "mirrors of a vertex-cut have legs"
        assert part.send_legs is not None, "mirrors of a vertex-cut have legs"
        here, nodes, some = partial(as_tensor, device=to_masters.device), to_masters.all_nodes, to_masters.full
        indptr = torch.cat([some.indptr, here(part.mirror_indptr)[1:] + some.indptr[-1]])
        csr, data = Csr(indptr, torch.cat([some.indices, here(part.mirror_indices)]), some.num_cols), None
        if to_masters.edge_attr is not None and part.mirror_edge_attr is not None:
            data = torch.cat([to_masters.edge_attr, here(part.mirror_edge_attr).to(to_masters.edge_attr.dtype)])
        return VertexShard(
            Pattern(csr, data=data),
            to_masters.num_inner,
            to_masters.links,
            torch.cat([nodes.inner, nodes.halo]),
            torch.cat([nodes.degree, nodes.halo_degree]),
            Legs(here(part.halo_legs), list(here(part.send_legs).split(to_masters.links.boundary.counts))),
        )

    def leg(self, pass_: str, leg: str) -> Leg:
        """Return the mirrors of a leg. Rows are for mirrors that are read, sums come from those that edges lead to.

        Backward the gradients of these rows come from the former, and those of the sums are for the latter.
        """
        return self.read if (pass_ == FORWARD) == (leg == SCATTER) else self.summed

    def leg_links(self, pass_: str, leg: str) -> Links:
        return self.leg(pass_, leg).links

    @cached_property
    def unread(self) -> Leg:
        """The mirrors that edges lead to, and that no edge here begins with."""
        here, there = self.legs
        return Leg.of(self.links, here == SUMMED, [legs == SUMMED for legs in there])

    def weigh(self, transport: Transport) -> None:
        """Let the one attribute of every edge be its weight; every worker calls it at the same time.

        A node's edges are on several workers: its weighted degree is gathered at its master, and scattered.
        """
        weight, where = self.attributes()[0].reshape(-1), Where("edge weights", "setup", 0, "ids")
        degree = torch.zeros(self.num_inner, dtype=torch.float64, device=self.device)
        degree.index_add_(0, self.inner.edge_rows, weight.double())
        came = self.links.push(degree[self.masters :], transport, where).wait()
        for rows, sums in zip(self.links.send_rows, came, strict=True):
            degree[rows.long()] += sums
        degree[self.masters :] = self.links.pull(degree[: self.masters], transport, where)
        self.weighted_degrees, self.inner_weight = (degree, degree[:0]), weight

    @property
    def num_owned(self) -> int:
        return self.masters

    @property
    def num_halo(self) -> int:
        return self.num_inner - self.masters

    def replicas(self, with_self: bool, needed: NeededReplicas | None) -> Replicas:
        """Return the edges to all replicas, or to the needed ones; with a self loop on every master, if asked."""
        key = with_self, id(needed)
        if key not in self._replicas:
            self._replicas[key] = Replicas(self, with_self, needed)
        return self._replicas[key]


class IsolatedShard(Shard):
    """The edges of one worker under a vertex-cut as a graph of their own, with the degrees here; nothing crosses."""

    alone = True

    def __init__(self, whole: VertexShard):
        here = whole.inner.indptr.diff()
        links = Links([rows[:0] for rows in whole.links.send_rows], [0] * len(whole.links.send_rows))
        nodes = Nodes(whole.nodes, whole.nodes[:0], here.to(whole.degree.dtype), whole.degree[:0])
        super().__init__(whole.inner, whole.halo, links, nodes, symmetric=False)
        every, masters = whole.degree.double(), torch.arange(whole.num_inner, device=whole.device) < whole.masters
        self.shares = torch.where(every > 0, here / every.clamp_min(1), masters.double())
        """The share of each node's edges that are here, float64 [N]: over all its replicas it is one."""


class Replicas(Shard):
    """The edges to m masters and their k mirrors here, (m + k) × N. Self loops are ordinary edges, of masters only."""

    replicated = True

    def __init__(self, whole: VertexShard, with_self: bool, needed: NeededReplicas | None):
        self.whole, self.needed = whole, needed
        every = torch.arange(whole.num_inner, device=whole.device)
        masters = every[: whole.masters] if needed is None else needed.rows
        mirrors = every[: whole.num_halo] if needed is None else needed.mirrors
        self.rows, self.masters = torch.cat([masters, mirrors + whole.masters]), len(masters)
        pattern = Pattern(whole.inner, whole.inner_weight)
        if needed is not None:
            pattern = pattern.of_rows(self.rows)
        if with_self:
            pattern = _looped(pattern, masters)
        nothing = Csr(torch.zeros_like(pattern.csr.indptr), pattern.csr.indices[:0], 0)
        links = whole.links if needed is None else needed.links
        super().__init__(pattern.csr, nothing, links, whole.all_nodes, symmetric=False)
        self.inner_weight, self.weighted_degrees = pattern.weight, whole.weighted_degrees
        if pattern.weight is not None:
            turned = pattern.turned()
            self.inner_out, self.inner_out_weight = turned.csr, turned.weight

    def leg(self, pass_: str, leg: str) -> Leg:
        """Return the mirrors of a leg; of the needed ones, which only sum, those that edges lead to."""
        return self.whole.leg(pass_, leg) if self.needed is None else self.needed.summed

    def norm(self, name: str, dtype: torch.dtype) -> Norm:
        if (name, dtype) not in self._norms:
            norm = self.whole.norm(name, dtype)
            target = norm.target if norm.target is None or self.needed is None else norm.target[self.rows]
            self._norms[name, dtype] = replace(norm, target=target, add_self=False)
        return self._norms[name, dtype]

    def sum_to_mirrors(self, x: Tensor, norm: Norm, out: Tensor) -> None:
        """Write the sums of the edges to mirrors to ``out`` [m + k, F], after the rows of the masters."""
        self._sum(slice(self.masters, None), x, norm, out)

    def sum_to_masters(self, x: Tensor, norm: Norm, out: Tensor) -> None:
        """Write the sums of the edges to masters to the first rows of ``out`` [m + k, F]."""
        self._sum(slice(0, self.masters), x, norm, out)

    def _sum(self, rows: slice, x: Tensor, norm: Norm, out: Tensor) -> None:
        first, last, _ = rows.indices(self.inner.num_rows)
        some = Csr(self.inner.indptr[first : last + 1], self.inner.indices, self.inner.num_cols)
        target = None if norm.target is None else norm.target[rows]
        kernels.aggregate(some, x, Weights(target, norm.source, self.inner_weight), out[rows])


def _looped(pattern: Pattern, masters: Tensor) -> Pattern:
    """Return the pattern with a self loop, of weight one, in front of each of its first rows: of these masters."""
    csr, m = pattern.csr, len(masters)
    ends = csr.indptr[m]
    first = Csr(csr.indptr[: m + 1], csr.indices[:ends], csr.num_cols).after(masters)
    looped = Csr(
        torch.cat([first.indptr, csr.indptr[m + 1 :] + m]),
        torch.cat([first.indices, csr.indices[ends:]]),
        csr.num_cols,
    )
    return Pattern(looped, None if pattern.weight is None else after_loops(pattern.weight, looped, m))
