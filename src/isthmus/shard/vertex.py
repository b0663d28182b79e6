"""The shard of a vertex-cut: every edge lives on one worker, and a node has a replica wherever it has an edge.

One replica, at the node's owner, is its master; the others are mirrors. A model computes rows of all replicas here,
the n masters first, then the h mirrors. An aggregation sums over the edges that are here, gathers the sums of mirrors
at their masters, and scatters the totals, so that all replicas of a node hold the same row again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Links, Transport, Where
from isthmus.kernels import Csr, Weights
from isthmus.partition.part import Part
from isthmus.shard.load import as_tensor
from isthmus.shard.norm import Norm
from isthmus.shard.shard import Nodes, Shard


@dataclass(frozen=True)
class NeededReplicas:
    """The masters that the loss reads, and the mirrors of such masters: only these take part in the last gather."""

    rows: Tensor  # int64 [m]: masters
    mirrors: Tensor  # int64 [k]: positions among the mirrors
    links: Links  # rows are counted among the m

    @staticmethod
    def of(whole: VertexShard, rows: Tensor, transport: Transport) -> NeededReplicas:
        """Tell the mirrors of these masters that they are needed; every worker does so at the same time."""
        place = torch.full((whole.num_owned,), -1, dtype=torch.int32, device=rows.device)
        place[rows] = torch.arange(len(rows), dtype=torch.int32, device=rows.device)
        where = Where("rows that are read", "setup", 0, "ids")
        needed = whole.links.pull((place >= 0).to(torch.uint8), transport, where).bool()
        sent = [place[boundary.long()] for boundary in whole.links.send_rows]
        counts = [int(flags.sum()) for flags in whole.links.mirrors.split(needed)]
        return NeededReplicas(rows, needed.nonzero().flatten(), Links([at[at >= 0] for at in sent], counts))

    def links_of(self, edges: Shard) -> Links:
        """Return the links of the needed rows."""
        return self.links


class VertexShard(Shard):
    """All edges of one worker under a vertex-cut, N × N between its n masters and h mirrors; N = n + h."""

    replicated = True

    def __init__(self, local: Csr, masters: int, links: Links, nodes: Tensor, degree: Tensor):
        nothing = Csr(torch.zeros_like(local.indptr), local.indices[:0], 0)
        super().__init__(local, nothing, links, Nodes(nodes, nodes[:0], degree, degree[:0]), symmetric=False)
        self.masters, self.halo_nodes = masters, nodes[masters:]
        self._replicas: dict[tuple[bool, int], Replicas] = {}

    @staticmethod
    def of(part: Part, to_masters: Shard) -> VertexShard:
        """Return the shard of a vertex-cut part, of which ``to_masters`` has the edges to masters alone."""
        assert part.mirror_indptr is not None, "only vertex-cuts have edges into mirrors"
        assert part.mirror_indices is not None, "only vertex-cuts have edges into mirrors"
        here, nodes, some = partial(as_tensor, device=to_masters.device), to_masters.all_nodes, to_masters.full
        indptr = torch.cat([some.indptr, here(part.mirror_indptr)[1:] + some.indptr[-1]])
        return VertexShard(
            Csr(indptr, torch.cat([some.indices, here(part.mirror_indices)]), some.num_cols),
            to_masters.num_inner,
            to_masters.links,
            torch.cat([nodes.inner, nodes.halo]),
            torch.cat([nodes.degree, nodes.halo_degree]),
        )

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


class Replicas(Shard):
    """The edges to m masters and their k mirrors here, (m + k) × N. Self loops are ordinary edges, of masters only."""

    replicated = True

    def __init__(self, whole: VertexShard, with_self: bool, needed: NeededReplicas | None):
        self.whole, self.needed = whole, needed
        every = torch.arange(whole.num_inner, device=whole.device)
        masters = every[: whole.masters] if needed is None else needed.rows
        mirrors = every[: whole.num_halo] if needed is None else needed.mirrors
        self.rows, self.masters = torch.cat([masters, mirrors + whole.masters]), len(masters)
        pattern = whole.inner if needed is None else kernels.select_rows(whole.inner, self.rows.to(torch.int32))
        if with_self:
            pattern = _looped(pattern, masters)
        nothing = Csr(torch.zeros_like(pattern.indptr), pattern.indices[:0], 0)
        links = whole.links if needed is None else needed.links
        super().__init__(pattern, nothing, links, whole.all_nodes, symmetric=False)

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
        kernels.aggregate(some, x, Weights(target, norm.source), out[rows])


def _looped(pattern: Csr, masters: Tensor) -> Csr:
    """Return the pattern with a self loop in front of each of its first rows, which belong to these masters."""
    m = len(masters)
    ends = pattern.indptr[m]
    first = Csr(pattern.indptr[: m + 1], pattern.indices[:ends], pattern.num_cols).after(masters)
    indptr = torch.cat([first.indptr, pattern.indptr[m + 1 :] + m])
    return Csr(indptr, torch.cat([first.indices, pattern.indices[ends:]]), pattern.num_cols)
