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
LATE = 0.5  # share of the halo's rows that a cover may have at most where rows are late, so that transfers cost little
_SETUP = Where("cover", "setup", 0, "ids")
_MADE = 4  # shards kept: to all rows, to those that the loss reads, to those that these are computed from


class Covers:
    """The whole graph under a cover cut; the rows that the loss needs have a cover of their own.

    All workers come to the same sites, so they make a cover at the same time. A cover has two legs, so twice the
    messages: if all workers were found to be on one host, or if rows are ``late``, it is taken only where it spares
    many rows, unless ``asked`` for.
    """

    def __init__(self, whole: Shard, needed: Needed, transport: Transport, asked: bool = False, late: bool = False):
        self.whole, self.needed, self.transport = whole, needed, transport
        linked = transport.hosts_given or len(set(transport.hosts)) > 1
        self._least = 0 if asked or linked or whole.stored_cover is not None else LEAST * transport.size
        self._most = LATE if late and not asked else 1.0
        self._lends: Tensor | None = None
        self._covers: dict[bool, Cover | None] = {}  # of all rows, of the needed ones; None where it does not pay
        self._made: deque[tuple[Tensor | None, bool, Covered | None]] = deque(maxlen=_MADE)

    def go_on(self, needed: bool, covered: bool) -> None:
        """Take the cover of all rows or of the ``needed`` ones, or do not, whatever it spares: rows are under way."""
        if not covered:
            self._covers[needed] = None
        elif self._covers.get(needed) is None:
            only = self.needed.declared.rows if needed and self.needed.declared is not None else None
            edges = self.whole if only is None else self.needed.towards(only, self.whole, True, all_halo=True)
            self._covers[needed] = self._cover(edges, only)

    def shard(self, only: Tensor | None, with_self: bool) -> Covered | None:
        """Return the edges to all rows, or to ``only`` some (int64), parted by a cover; None if that does not pay."""
        for rows, loops, made in self._made:
            if rows is only and (rows is None or loops is with_self):
                return made
        self._made.append((only, with_self, self._shard(only, with_self)))
        return self._made[-1][2]

    def links(self, needed: bool, sums: bool) -> Links:
        """Return the links of the rows or ``sums`` of a cover that is taken."""
        cover = self._covers[needed]
        assert cover is not None, "rows are under way by it"
        return cover.sums.links if sums else cover.links

    def _shard(self, only: Tensor | None, with_self: bool) -> Covered | None:
        edges = self.whole if only is None else self.needed.towards(only, self.whole, with_self, all_halo=True)
        needed = self.needed.is_needed(only)
        # The rows that a worker computes for the layer above are its own affair: what all make together goes by needed.
        if needed not in self._covers:
            found = self._cover(edges if needed else self.whole, only if needed else None)
            links = self.needed.links_at(0, needed=True) if needed else self.whole.links
            self._covers[needed] = found if self._pays(found, links) else None
        cover = self._covers[needed]
        if cover is None:
            return None
        return Covered(edges, cover if needed or only is None else cover.towards(only))

    def _cover(self, edges: Shard, only: Tensor | None) -> Cover:
        """Make the cover of all edges, or of those to the needed rows ``only``."""
        if self._lends is None:
            load = torch.tensor([self.whole.num_edges], device=self.whole.device)
            self._lends = lends(torch.cat(self.transport.all_gather(load, _SETUP)), self.transport.rank)
        covered = self.whole.stored_cover if only is None else None
        if covered is None:
            covered = halo_cover(edges.halo, self.whole.links.mirrors.ptr, self._lends)
        degree = self._degree if only is None else self._degree[only]
        return make_cover(self.whole, Pattern(edges.halo, edges.halo_weight), degree, covered, self.transport)

    def _pays(self, cover: Cover, links: Links) -> bool:
        """Return whether a cover spares enough of the rows that cross without it, on all workers together."""
        if not self._least and self._most == 1:
            return True
        mine = torch.tensor([links.num_mirrors, cover.rows], device=self.whole.device)
        halo, rows = self.transport.all_reduce(mine, _SETUP).tolist()
        return halo - rows >= self._least and rows <= self._most * halo

    @property
    def _degree(self) -> Tensor:
        return self.whole.degree if self.whole.weighted_degrees is None else self.whole.weighted_degrees[0]
