"""The context in which a sampler draws: the whole shard, its links, and how a draw becomes a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Links, Push, Transport, Where, bits
from isthmus.kernels import Csr
from isthmus.shard.drawn import BothWays, Drawn, Pattern
from isthmus.shard.shard import EdgeAttr, Shard


class ReadRequest(NamedTuple):
    """The halo rows that a drawn graph reads, and the message under way that tells their owners."""

    read: Tensor  # bool [h]
    told: Push


@dataclass(frozen=True)
class DrawContext:
    """Everything that a sampler draws from: this worker's whole graph, its transport to the others, the seed."""

    whole: Shard
    transport: Transport
    seed: int
    dtype: torch.dtype = torch.float32  # of weights
    share_read: float = 1.0  # of all workers' rows: those that the loss reads

    @property
    def rows_read(self) -> float:
        """The number of rows that the loss reads on all workers, as seen from this one: parts are about equal."""
        return self.share_read * self.whole.num_inner * self.transport.size

    def with_rows(self, halo: Sequence[Tensor], sent: Sequence[Tensor], scale: Tensor) -> Drawn:
        """Return the graph with some of the halo nodes, and all their edges.

        ``halo[q]`` int32: the drawn ones of the halo rows from worker q; ``sent[q]``: the ones of my rows that worker q
        drew; ``scale`` float64: the factor of each halo row.
        """
        whole, links = self.whole, self.whole.links
        picked = torch.cat([rows.long() + first for rows, first in zip(halo, links.mirrors.ptr, strict=False)])
        halo_out = kernels.select_rows(whole.halo_out, picked.to(torch.int32))
        return Drawn(
            whole,
            _links(links, halo, sent),
            picked,
            BothWays(Pattern(kernels.transpose(halo_out)[0]), Pattern(halo_out)),
            halo_scale=scale,
            edge_attr=whole.edge_attributes and (lambda: _attributes(whole, picked)),
        )

    def ask(self, halo: Csr, step: int, site: str = "drawn graph") -> ReadRequest:
        """Tell owners which halo rows the edges n × h read, one bit per row; do not wait for the other workers."""
        read = torch.zeros(self.whole.num_halo, dtype=torch.bool, device=self.whole.device)
        read[halo.indices.long()] = True
        return ReadRequest(read, self.whole.links.push(read, self.transport, Where(site, "setup", step, "ids")))

    def with_edges(
        self, asked: ReadRequest, halo: BothWays, inner: BothWays | None, edge_attr: EdgeAttr = None
    ) -> Drawn:
        """Return the graph with some of the edges, and the halo nodes that they read: those in the request."""
        read = asked.read
        picked, number = read.nonzero().flatten(), read.cumsum(0, dtype=torch.int32) - 1
        into, out = halo.edges.csr, halo.turned.csr
        into = Csr(into.indptr, number[into.indices.long()], len(picked))
        ends = torch.cat([out.indptr[:1], out.indptr[picked + 1]])  # rows of nodes that are not read are empty
        out = Csr(ends, out.indices, out.num_cols)
        halo = BothWays(Pattern(into, halo.edges.weight), Pattern(out, halo.turned.weight))
        return Drawn(self.whole, self.answered(asked), picked, halo, inner, edge_attr=edge_attr)

    def answered(self, asked: ReadRequest) -> Links:
        """Wait for the others' requests; return links with the halo rows read here and my rows that others read."""
        links = self.whole.links
        sent = [bits.numbers(flags) for flags in asked.told.wait()]
        halo = [bits.numbers(flags) for flags in links.mirrors.split(asked.read)]
        return _links(links, halo, sent)


def _links(links: Links, halo: Sequence[Tensor], sent: Sequence[Tensor]) -> Links:
    send_rows = [rows[chosen.long()] for rows, chosen in zip(links.send_rows, sent, strict=True)]
    return Links(send_rows, [len(rows) for rows in halo], list(sent), list(halo))


def _attributes(whole: Shard, picked: Tensor) -> tuple[Tensor, Tensor]:
    """Return edge attributes in the order of the twice transposed halo edges: by target, then by halo node."""
    inner, halo = whole.attributes()
    number = torch.full((whole.num_halo,), -1, device=whole.device)
    number[picked] = torch.arange(len(picked), device=whole.device)
    cols = number[whole.halo.indices.long()]
    kept = (cols >= 0).nonzero().flatten()
    order = torch.argsort(whole.halo.edge_rows[kept] * max(len(picked), 1) + cols[kept])
    return inner, halo[kept[order]]
