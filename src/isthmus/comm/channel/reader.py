"""The reader's half of a channel: decode, merge; and what it holds of the others' rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm.channel.buffers import Buffers
from isthmus.comm.channel.select import Picks
from isthmus.comm.channel.stages import Add, Replace, Smooth, Stages
from isthmus.comm.links import FORWARD, Ends, Links
from isthmus.comm.transport import Pending


@dataclass
class Message:
    """The rows of all peers for one step: under way, or arrived and not yet due."""

    sent: int  # the step at which it left
    due: int  # the step at which it is used
    links: Links
    picks: Picks  # per peer: which of its rows came; None is all of them
    width: int  # of a row
    dtype: torch.dtype  # of a row
    parts: list[Tensor]  # per peer, as coded
    block: Tensor | None  # where all parts lie one after the other, if rows are used as they arrive
    leaving: list[Tensor] = field(default_factory=list)  # what I sent, kept until it has left
    pending: Pending | None = None


class Reader:
    """Holds, of every row that the links can carry, what the merge makes of the messages.

    ``rows`` [r, F] is what is read, laid out by peer as ``layout`` says. Where old rows are kept (`store`), that is all
    of them or, on a drawn graph, those that were drawn for it.
    """

    def __init__(self, stages: Stages, direction: str, whole: Links, buffers: Buffers):
        self.stages, self.direction, self.whole, self.buffers = stages, direction, whole, buffers
        self.persistent = not isinstance(stages.merge, Replace)  # old rows are kept and updated
        self.layout: Links | None = None  # None before the first message
        self.layout_of = 0  # the step whose links those are
        self.rows = torch.empty(0)
        self.store = torch.empty(0)  # [rows of all links, F]
        self.updated = torch.empty(0, dtype=torch.int32)  # [rows of all links], or one for all: the step they come from

    def merge(self, message: Message) -> None:
        if self.persistent:
            self._update(message)
        else:
            self._replace(message)
        self.layout_of = message.due if self.direction == FORWARD else message.sent

    def release(self) -> None:
        """What is read will not be read again."""
        if self.rows is not self.store:
            self.buffers.give(self.rows)

    def ages(self, step: int) -> Tensor:
        """How many steps old the rows are that are read, one number per row or one for all."""
        drawn = self._drawn() if self.persistent else None
        return step - (self.updated if drawn is None else self.updated[drawn.long()])

    def show(self, layout: Links) -> None:
        """Reads what is kept of the rows of `layout`."""
        self.layout = layout
        drawn = self._drawn()
        if drawn is None:
            self.rows = self.store
        else:
            self.rows = self.buffers.take((len(drawn), self.store.shape[1]), self.store.dtype)
            kernels.gather_rows(self.store, drawn, self.rows)

    def _drawn(self) -> Tensor | None:
        """Where the rows that are read stand in the store, int32; None: they are all of it."""
        assert self.layout is not None, "rows are read after the first message"
        positions = self.layout.arriving(self.direction).positions
        if positions is None:
            return None
        first = self.whole.arriving(self.direction).ptr
        return torch.cat([rows + ptr for rows, ptr in zip(positions, first, strict=False)])

    def _replace(self, message: Message) -> None:
        block = message.block
        if block is None:
            ends = Ends([len(part) for part in message.parts])
            block = self.buffers.take((ends.ptr[-1], message.width), message.dtype)
            for part, rows in zip(message.parts, ends.split(block), strict=True):
                self.stages.encode.decode(part, rows)
        self.rows, self.layout = block, message.links
        self.updated = torch.tensor([message.sent], dtype=torch.int32)

    def _update(self, message: Message) -> None:
        fresh = self.layout is None
        ends = self.whole.arriving(self.direction)
        if fresh:
            self.store = torch.zeros(ends.ptr[-1], message.width, dtype=kernels.sum_dtype(message.dtype))
            self.updated = torch.full((ends.ptr[-1],), message.sent, dtype=torch.int32)
        came = message.links.arriving(self.direction)
        updated = ends.split(self.updated)
        for q, rows in enumerate(ends.split(self.store)):
            picks, positions = message.picks[q], None if came.positions is None else came.positions[q]
            if picks is not None:
                positions = picks if positions is None else positions[picks.long()]
            if len(message.parts[q]):
                self._update_rows(message, message.parts[q], rows, positions, fresh)
                updated[q][slice(None) if positions is None else positions.long()] = message.sent
        self.show(message.links if came.positions is not None else self.whole)

    def _update_rows(self, message: Message, part: Tensor, rows: Tensor, positions: Tensor | None, fresh: bool) -> None:
        codec, merge = self.stages.encode, self.stages.merge
        if not isinstance(merge, Smooth) or (fresh and not merge.from_zero):
            codec.decode(part, rows, positions, add=isinstance(merge, Add))
            return
        arrived = part
        if not codec.lossless or part.dtype != rows.dtype:
            arrived = self.buffers.take((len(part), message.width), rows.dtype)
            codec.decode(part, arrived)
        rows.lerp_(arrived, 1 - merge.decay)
        self.buffers.give(arrived)


def arriving_counts(ends: Ends, picks: Picks) -> list[int]:
    """Rows that come from each peer."""
    return [count if pick is None else len(pick) for count, pick in zip(ends.counts, picks, strict=True)]
