"""Rows that the loss reads after a pass, and the halo rows next to them."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Links
from isthmus.kernels import Csr
from isthmus.shard.draw_context import DrawContext
from isthmus.shard.shard import Shard

_SIZES = 32  # round `sources` to a multiple of n/32: tensors whose sizes differ a little leave gaps in memory


class NeededRows:
    """The inner rows that the loss needs (``rows`` int64 [m] of n), and the halo rows with an edge to one of them.

    An aggregation that computes only these rows reads no other halo rows. All workers make it at the same time and tell
    the owners; both ends of a link then know which rows of any drawn graph have to cross.
    """

    def __init__(self, context: DrawContext, rows: Tensor, drawn: bool, others: bool = False):
        """Tell the owners which halo rows are read.

        ``drawn``: the links keep the positions of their rows in the whole graph's links, as those of drawn graphs do.
        ``others``: all halo rows cross, whether they are read or not.
        """
        whole, self.rows = context.whole, rows
        towards = whole.halo if others else kernels.select_rows(whole.halo, rows.to(torch.int32))
        asked = context.ask(towards, 0, "rows that are read")
        links, self.halo = context.answered(asked), asked.read  # bool [h]
        self.links = links if drawn else Links(links.send_rows, links.mirror_counts)
        self._sent = [
            _flags(len(could), does)
            for could, does in zip(whole.links.send_rows, links.send_positions or [], strict=True)
        ]
        self._asked_for = _flags(whole.num_inner, torch.cat([rows, *(sent.long() for sent in links.send_rows)]))
        self._whole, self._halo_by_owner = whole, whole.links.mirrors.split(self.halo)
        self._sources: tuple[Csr, Tensor] | None = None  # the last result, and the inner edges it was made from

    def links_of(self, edges: Shard) -> Links:
        """Return the links of a graph, the whole or a drawn one, without the rows that nobody reads."""
        links = edges.links
        if links.send_positions is None or links.mirror_positions is None:
            return self.links
        if edges.needed_links is None:
            halo = [needed[at.long()] for needed, at in zip(self._halo_by_owner, links.mirror_positions, strict=True)]
            sent = [needed[at.long()] for needed, at in zip(self._sent, links.send_positions, strict=True)]
            edges.needed_links = Links(
                [rows[kept] for rows, kept in zip(links.send_rows, sent, strict=True)],
                [int(kept.sum()) for kept in halo],
                [places[kept] for places, kept in zip(links.send_positions, sent, strict=True)],
                [places[kept] for places, kept in zip(links.mirror_positions, halo, strict=True)],
            )
        return edges.needed_links

    def halo_of(self, edges: Shard) -> Tensor:
        """Return which of a graph's halo rows are read, bool [its h]."""
        return self.halo if edges.picked is None else self.halo[edges.picked]

    @cached_property
    def inner(self) -> Csr:
        """The whole graph's inner edges to `rows`, [m, n]."""
        return kernels.select_rows(self._whole.inner, self.rows.to(torch.int32))

    def sources(self, edges: Shard, thinned: Csr | None) -> Tensor:
        """Return the inner rows (int64) that edges to `rows` come from, or that anybody reads as they are.

        The edges are those of a graph, or ``thinned`` [m, n]. The same tensor is returned while they stay the same.
        """
        inner = edges.inner if thinned is None else thinned
        if self._sources is None or self._sources[0] is not inner:
            read = self._asked_for.clone()
            towards = thinned or kernels.select_rows(inner, self.rows.to(torch.int32))
            read[towards.indices.long()] = True
            lacking = -int(read.sum()) % -(-len(read) // _SIZES)
            read[(~read).nonzero().flatten()[:lacking]] = True
            self._sources = inner, read.nonzero().flatten()
        return self._sources[1]


def _flags(count: int, rows: Tensor) -> Tensor:
    flags = torch.zeros(count, dtype=torch.bool, device=rows.device)
    flags[rows.long()] = True
    return flags
