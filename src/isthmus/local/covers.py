"""The covers of a worker's graph, made when an aggregation first takes one."""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from isthmus.comm import Links, Transport, Where
from isthmus.local.needed import Needed
from isthmus.partition.cover import halo_cover, lends
from isthmus.shard import Cover, Covered, Pattern, Shard, make_cover

LEAST = 5000  # rows per worker and exchange that must be spared on one host, where messages cost more than rows
_MADE = 4  # shards kept: to all rows, to those that the loss reads, to those that these are computed from


class Covers:
    """The whole graph under a cover cut; the rows that the loss needs have a cover of their own.

    All workers come to the same sites, so they make a cover at the same time. A cover has two legs, so twice the
    messages: if all workers were found to be on one host it is taken only where it spares many rows, unless
    ``asked`` for.
    """

    def __init__(self, whole: Shard, needed: Needed, transport: Transport, asked: bool = False):
        self.whole, self.needed, self.transport = whole, needed, transport
        linked = transport.hosts_given or len(set(transport.hosts)) > 1
        self._least = 0 if asked or linked or whole.stored_cover is not None else LEAST * transport.size
        self._lends: Tensor | None = None
        self._of_whole: Cover | None = None
        self._made: deque[tuple[Tensor | None, bool, Covered | None]] = deque(maxlen=_MADE)

    def shard(self, only: Tensor | None, with_self: bool) -> Covered | None:
        """Return the edges to all rows, or to ``only`` some (int64), parted by a cover; None if that does not pay."""
        for rows, loops, made in self._made:
            if rows is only and (rows is None or loops is with_self):
                return made
        self._made.append((only, with_self, self._shard(only, with_self)))
        return self._made[-1][2]

    def _shard(self, only: Tensor | None, with_self: bool) -> Covered | None:
        if only is None:
            return Covered(self.whole, self._whole()) if self._pays(self._whole(), self.whole.links) else None
        edges = self.needed.towards(only, self.whole, with_self, all_halo=True)
        if self.needed.is_needed(only):
            cover = self._cover(edges, self._degree[only], None)
            return Covered(edges, cover) if self._pays(cover, self.needed.links_at(0, needed=True)) else None
        whole = self._whole()
        return Covered(edges, whole.towards(only)) if self._pays(whole, self.whole.links) else None

    def _pays(self, cover: Cover, links: Links) -> bool:
        """Return whether a cover spares enough of the rows that cross without it, on all workers together."""
        if not self._least:
            return True
        spared = torch.tensor([links.num_mirrors - cover.rows], device=self.whole.device)
        return self.transport.all_reduce(spared, Where("cover", "setup", 0, "ids")).item() >= self._least

    def _whole(self) -> Cover:
        # No cached_property: its lock would keep workers that are threads from doing this together.
        if self._of_whole is None:
            self._of_whole = self._cover(self.whole, self._degree, self.whole.stored_cover)
        return self._of_whole

    @property
    def _degree(self) -> Tensor:
        return self.whole.degree if self.whole.weighted_degrees is None else self.whole.weighted_degrees[0]

    def _cover(self, edges: Shard, degree: Tensor, covered: Tensor | None) -> Cover:
        if self._lends is None:
            load = torch.tensor([self.whole.num_edges], device=self.whole.device)
            where = Where("cover", "setup", 0, "ids")
            self._lends = lends(torch.cat(self.transport.all_gather(load, where)), self.transport.rank)
        if covered is None:
            covered = halo_cover(edges.halo, self.whole.links.mirrors.ptr, self._lends)
        return make_cover(self.whole, Pattern(edges.halo, edges.halo_weight), degree, covered, self.transport)
