"""A channel between hosts: a row crosses to each other host once, and is spread or summed there (`comm.relays`)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm.channel.channel import Channel
from isthmus.comm.channel.stages import Stages
from isthmus.comm.ledger import Where
from isthmus.comm.legs import GATHER, SCATTER, ChannelId
from isthmus.comm.links import Links
from isthmus.comm.relays import Relays
from isthmus.comm.transport import Transport
from isthmus.kernels.buffers import Buffers


class Relayed(Channel):
    """A channel whose stages work between owners and relays; within a host rows are passed on as they are.

    In a gather, mirrors' rows are added on their host before they are posted. In a scatter, rows are passed on when
    they are taken.
    """

    def __init__(
        self,
        transport: Transport,
        stages: Stages,
        whole: Links,
        channel: ChannelId,
        seed: int,
        buffers: Buffers,
        relays_of: Callable[[Links], Relays | None],
    ):
        self.relays_of = relays_of
        self.by_outer: dict[int, Relays] = {}
        self.spread = torch.empty(0)  # the rows of all mirrors that were taken last
        super().__init__(transport, stages, self.carried(whole) if stages.remembers else whole, channel, seed, buffers)

    def carried(self, links: Links) -> Links:
        relays = self.relays_of(links)
        if relays is None:
            return links
        self.by_outer[id(relays.outer)] = relays
        return relays.outer

    def post(self, step: int, rows: Tensor, links: Links, kind: str, due: int | None = None) -> None:
        relays = self.relays_of(links)
        if relays is not None and self.id.leg == GATHER:
            rows = self._summed(rows, relays, Where(self.id.site, self.id.label, step, kind))
        super().post(step, rows, self.carried(links), kind, due)

    def take(self, step: int) -> Tensor | None:
        taken = super().take(step)
        relays = None if taken is None else self.by_outer.get(id(self.reader.layout))
        if taken is None or relays is None or self.id.leg != SCATTER:
            return taken
        return self._spread(taken, relays, Where(self.id.site, self.id.label, step, self.kind))

    def reads(self, links: Links) -> bool:
        return self.reader.layout is self.carried(links)

    def _summed(self, rows: Tensor, relays: Relays, where: Where) -> Tensor:
        """Add the rows [mirrors, F] of my host's workers; return those that I relay, [mirrors of `Relays.outer`, F]."""
        inner, width, wide = relays.inner, rows.shape[1], kernels.sum_dtype(rows.dtype)
        block = kernels.gather_rows(rows, relays.passed, self.buffers.take((len(relays.passed), width), rows.dtype))
        came = self.buffers.take((inner.boundary.ptr[-1], width), rows.dtype)
        pending = self.transport.exchange(inner.mirrors.split(block), inner.boundary.split(came), where)
        sums = kernels.gather_rows(rows, relays.here, self.buffers.take((len(relays.here), width), rows.dtype))
        total = sums.to(wide)
        pending.wait()
        for at, part in zip(inner.send_rows, inner.boundary.split(came), strict=True):
            if len(at):
                kernels.scatter_add_rows(total, at, part.to(wide))
        for tensor in (rows, block, came):
            self.buffers.give(tensor)
        return sums if total is sums else sums.copy_(total)

    def _room_after(self, links: Links) -> int:
        relays = self.by_outer.get(id(links))
        return 0 if relays is None or self.id.leg == GATHER else relays.inner.num_mirrors

    def _spread(self, rows: Tensor, relays: Relays, where: Where) -> Tensor:
        """Pass the rows [mirrors of `Relays.outer`, F] on to my host's workers; return those of all my mirrors."""
        inner, width, first = relays.inner, rows.shape[1], relays.outer.num_mirrors
        if len(rows) == first:  # they are kept, or come from a checkpoint: there is no room after them
            rows = torch.cat([rows, rows.new_empty(inner.num_mirrors, width)])
        passed = self.buffers.take((inner.boundary.ptr[-1], width), rows.dtype)
        leaving = inner.boundary.split(passed)
        for at, part in zip(inner.send_rows, leaving, strict=True):
            kernels.gather_rows(rows, at, part)
        self.transport.exchange(leaving, inner.mirrors.split(rows[first:]), where).wait()
        self.buffers.give(passed)
        self.buffers.give(self.spread)
        self.spread = self.buffers.take((relays.links.num_mirrors, width), rows.dtype)
        return kernels.gather_rows(rows, relays.order, self.spread)
