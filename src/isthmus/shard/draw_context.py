"""What a sampler draws from, and what it makes of a draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Links, Pending, Transport, Where, flags
from isthmus.kernels import Csr
from isthmus.shard.drawn import Drawn, Pattern
from isthmus.shard.shard import EdgeAttr, Shard


class ReadRequest(NamedTuple):
    """Which halo rows a drawn graph reads, on its way to their owners; and what readers say of mine."""

    read: Tensor  # bool [h]
    heard: list[Tensor]  # per peer: one bit for each of my rows that it could read
    pending: Pending


@dataclass(frozen=True)
class DrawContext:
    """The whole graph as this worker has it, its links to the others, and the seed of the draws."""

    whole: Shard
    transport: Transport
    seed: int
    dtype: torch.dtype = torch.float32  # of weights

    def with_rows(self, halo: Sequence[Tensor], sent: Sequence[Tensor], scale: Tensor) -> Drawn:
        """The graph with some of the halo nodes, and all their edges.

        ``halo[q]`` int32: which of the halo rows from worker q; ``sent[q]``: which of my rows worker q drew likewise;
        ``scale`` float64: what each halo row counts.
        """
        whole, links = self.whole, self.whole.links
        picked = torch.cat([rows.long() + first for rows, first in zip(halo, links.halo.ptr, strict=False)])
        halo_out = kernels.select_rows(whole.halo_out, picked.to(torch.int32))
        return Drawn(
            whole,
            _links(links, halo, sent),
            picked,
            Pattern(kernels.transpose(halo_out)[0]),
            Pattern(halo_out),
            scale,
            edge_attr=whole.edge_attributes and (lambda: _attributes(whole, picked)),
        )

    def ask(self, halo: Csr, step: int, site: str = "drawn graph") -> ReadRequest:
        """Tells the owners which halo rows the edges n × h read, one bit per row; does not wait for what others say."""
        read = torch.zeros(self.whole.num_halo, dtype=torch.bool)
        read[halo.indices.long()] = True
        links, where = self.whole.links, Where(site, "backward", step, "ids")
        heard = [flags.room(len(rows)) for rows in links.send_rows]
        leaving = [flags.pack(rows) for rows in links.halo.split(read)]
        return ReadRequest(read, heard, self.transport.exchange(leaving, heard, where))

    def with_edges(
        self,
        asked: ReadRequest,
        halo: Pattern,  # n × h
        halo_out: Pattern | None,  # h × n
        inner: Pattern | None,
        inner_out: Pattern | None,
        edge_attr: EdgeAttr = None,
    ) -> Drawn:
        """The graph with some of the edges, and the halo nodes that they read: those that were asked for."""
        read = asked.read
        picked, number = read.nonzero().flatten(), read.cumsum(0, dtype=torch.int32) - 1
        compact = Csr(halo.csr.indptr, number[halo.csr.indices.long()], len(picked))
        if halo_out is not None:  # rows of nodes that are not read are empty
            ends = torch.cat([halo_out.csr.indptr[:1], halo_out.csr.indptr[picked + 1]])
            halo_out = Pattern(Csr(ends, halo_out.csr.indices, halo_out.csr.num_cols), halo_out.weight)
        links = self.answered(asked)
        halo = Pattern(compact, halo.weight)
        return Drawn(self.whole, links, picked, halo, halo_out, None, inner, inner_out, edge_attr)

    def answered(self, asked: ReadRequest) -> Links:
        """The links of the halo rows that are read, and of those of mine that others read."""
        links = self.whole.links
        asked.pending.wait()
        sent = [flags.unpack(bits, len(rows)) for bits, rows in zip(asked.heard, links.send_rows, strict=True)]
        halo = [rows.nonzero().flatten().to(torch.int32) for rows in links.halo.split(asked.read)]
        return _links(links, halo, sent)


def _links(links: Links, halo: Sequence[Tensor], sent: Sequence[Tensor]) -> Links:
    send_rows = [rows[chosen.long()] for rows, chosen in zip(links.send_rows, sent, strict=True)]
    return Links(send_rows, [len(rows) for rows in halo], list(sent), list(halo))


def _attributes(whole: Shard, picked: Tensor) -> tuple[Tensor, Tensor]:
    """Edge attributes in the order that turning the drawn halo edges twice gives: by target, then by halo node."""
    inner, halo = whole.attributes()
    number = torch.full((whole.num_halo,), -1)
    number[picked] = torch.arange(len(picked))
    cols = number[whole.halo.indices.long()]
    kept = (cols >= 0).nonzero().flatten()
    order = torch.argsort(whole.halo.edge_rows[kept] * max(len(picked), 1) + cols[kept])
    return inner, halo[kept[order]]
