"""The reader's half of a channel: decodes and merges messages, and holds the others' rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm.channel.codec import Each
from isthmus.comm.channel.select import SURE, Picks
from isthmus.comm.channel.stages import Stages
from isthmus.comm.legs import FORWARD, ChannelId
from isthmus.comm.links import Ends, Links
from isthmus.comm.transport import Pending
from isthmus.kernels.buffers import Buffers


@dataclass
class Message:
    """The rows of all peers for one step: under way, or arrived but not yet due."""

    sent: int  # the step at which it left
    due: int  # the step at which it is used
    links: Links
    picks: Picks  # per peer: the rows that came; None: all of them
    width: int  # of a row
    dtype: torch.dtype  # of a row
    counts: list[int]  # of rows, per peer
    parts: list[Tensor]  # per peer, as coded
    block: Tensor | None  # holds all parts one after the other, if rows are used as they arrive
    codecs: Each  # per peer
    levels: list[Tensor] = field(default_factory=list)  # per peer: the chance with which each row came, if drawn
    leaving: list[Tensor] = field(default_factory=list)  # what I sent, kept until it has left
    pending: Pending | None = None


class Reader:
    """The receiving end: it holds, for every row that the links can carry, the merged messages.

    ``rows`` [r, F] are the rows to read, laid out by peer as ``layout`` says. Where old rows are kept (`store`), these
    are all of them or, on a drawn graph, the drawn ones.
    """

    def __init__(self, stages: Stages, channel: ChannelId, whole: Links, buffers: Buffers):
        self.stages, self.channel, self.whole, self.buffers = stages, channel, whole, buffers
        self.layout: Links | None = None  # None before the first message
        self.layout_of = 0  # the step whose links those are
        self.rows = torch.empty(0)
        self.store = torch.empty(0)  # [rows of all links, F]
        self.updated = torch.empty(0, dtype=torch.int32)  # [rows of all links], or one for all: the step they come from

    def merge(self, message: Message) -> None:
        """Merge a message that is due into the rows held."""
        if self.stages.merge.keeps:
            self._update(message)
        else:
            self._replace(message)
        # Rows are for the graph of the step that reads them, gradients for that of the step that made them.
        self.layout_of = message.due if self.channel.pass_ == FORWARD else message.sent

    def release(self) -> None:
        """Give back the memory of the rows read: they will not be read again."""
        if self.rows is not self.store:
            self.buffers.give(self.rows)

    def ages(self, step: int) -> tuple[float, int]:
        """Return the mean age in steps of the rows that are read, and the greatest."""
        if not self.stages.merge.keeps:
            age = step - int(self.updated)  # one message's rows
            return age, age
        drawn = self._drawn()
        ages = step - (self.updated if drawn is None else self.updated[drawn.long()])
        return float(ages.double().mean()), int(ages.max())

    def show(self, layout: Links) -> None:
        """Let the rows of `layout` be read from the store."""
        self.layout = layout
        drawn = self._drawn()
        if drawn is None:
            self.rows = self.store
        else:
            self.rows = self.buffers.take((len(drawn), self.store.shape[1]), self.store.dtype)
            kernels.gather_rows(self.store, drawn, self.rows)

    @property
    def _ends(self) -> Ends:
        """Where the rows of each peer lie in the store."""
        return self.whole.arriving(self.channel.leg)

    def _drawn(self) -> Tensor | None:
        """Return the positions in the store of the rows that are read, int32; None: all of it."""
        assert self.layout is not None, "rows are read after the first message"
        positions = self.layout.arriving(self.channel.leg).positions
        if positions is None:
            return None
        first = self._ends.ptr
        return torch.cat([rows + ptr for rows, ptr in zip(positions, first, strict=False)])

    def _replace(self, message: Message) -> None:
        block = message.block
        if block is None:
            ends = Ends(message.counts)
            block = self.buffers.take((ends.ptr[-1], message.width), message.dtype)
            for part, rows, codec in zip(message.parts, ends.split(block), message.codecs, strict=True):
                codec.decode(part, rows)
        self.rows, self.layout = block, message.links
        self.updated = torch.tensor([message.sent], dtype=torch.int32)

    def _update(self, message: Message) -> None:
        first = self.layout is None
        ends = self._ends
        if first:
            wide = kernels.sum_dtype(message.dtype)
            self.store = message.parts[0].new_zeros(ends.ptr[-1], message.width, dtype=wide)
            self.updated = self.store.new_full((ends.ptr[-1],), message.sent, dtype=torch.int32)
        came = message.links.arriving(self.channel.leg)
        updated = ends.split(self.updated)
        before = self.store.clone() if message.levels else self.store
        for q, rows in enumerate(ends.split(self.store)):
            picks, positions = message.picks[q], None if came.positions is None else came.positions[q]
            if picks is not None:
                positions = picks if positions is None else positions[picks.long()]
            if len(message.parts[q]):
                self.stages.merge.apply(message.parts[q], rows, positions, self.stages.encode, first, self.buffers)
                updated[q][slice(None) if positions is None else positions.long()] = message.sent
        self.show(message.links if came.positions is not None else self.whole)
        if message.levels:
            self.rows = self._weighed(before, message)

    def _weighed(self, before: Tensor, message: Message) -> Tensor:
        """Return the rows to read where changes were drawn: each counts one over the chance with which it came."""
        weights = before.new_ones(len(before), 1)
        for part, picks, levels in zip(self._ends.split(weights), message.picks, message.levels, strict=True):
            assert picks is not None, "drawn rows are announced one by one"
            part[picks.long(), 0] = SURE / levels.to(part.dtype)
        return torch.lerp(before, self.store, weights)


def arriving_counts(ends: Ends, picks: Picks) -> list[int]:
    """Return the number of rows that come from each peer."""
    return [count if pick is None else len(pick) for count, pick in zip(ends.counts, picks, strict=True)]
