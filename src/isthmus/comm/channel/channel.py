"""The channel: the path of rows for one (site, pass, leg), from their senders to the rows that a reader holds.

    select → encode → ship → (wait) → decode → merge

Its stages (`Stages`) are a recipe's choice. Its state (rows held, rows under way, the sender's copy of what readers
hold, what the selector has learnt) is part of a checkpoint.
"""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import bits
from isthmus.comm.channel.codec import Each
from isthmus.comm.channel.own import OwnShare
from isthmus.comm.channel.reader import Message, Reader, arriving_counts
from isthmus.comm.channel.select import Picks
from isthmus.comm.channel.sender import Leaving, Sender
from isthmus.comm.channel.stages import Stages
from isthmus.comm.ledger import PROBE, Where
from isthmus.comm.legs import BACKWARD, GATHER, ChannelId
from isthmus.comm.links import Ends, Links
from isthmus.comm.transport import Transport
from isthmus.kernels.buffers import Buffers

DRAWS = 0xD0  # sets draws of rows apart from others


class Channel:
    """The path of the rows of one site, pass and leg: `post` sends this step's rows, `take` returns the others'."""

    def __init__(
        self, transport: Transport, stages: Stages, whole: Links, channel: ChannelId, seed: int, buffers: Buffers
    ):
        """Make a channel. ``whole``: all rows that can ever cross; the links of a post may carry fewer."""
        self.transport, self.stages, self.id, self.seed, self.buffers = transport, stages, channel, seed, buffers
        self.sender = Sender(stages, channel.leg, transport.rank, whole, buffers)
        self.reader = Reader(stages, channel, whole, buffers)
        self.coding = stages.encode.start()  # where rows are written in different ways
        self.queue: deque[Message] = deque()
        self.first: int | None = None  # the step of the first post
        self.kind = ""  # the kind of the rows posted last
        self.own = OwnShare(stages.select)  # of the sums that a gather makes, where shares are held back
        self.share = 0, 0  # rows that left at the last post, and rows that could have

    def outbox(self, rows: int, width: int, dtype: torch.dtype) -> Tensor:
        """Return memory for a block that will be posted: it is sent from there without another copy."""
        return self.buffers.take((rows, width), dtype)

    def dues(self, step: int) -> range:
        """Return the steps that use the rows sent now.

        After a warm start the first rows serve until delayed ones are due.
        """
        delay = self.stages.delay
        begin = step if self.stages.warm and self.first in (None, step) else step + delay
        return range(begin, step + delay + 1)

    def post(self, step: int, rows: Tensor, links: Links, kind: str, due: int | None = None) -> None:
        """Send rows, to be used at step ``due`` (by default the first of `dues`), and return at once.

        In a scatter ``rows`` are my rows [n, F]; in a gather those of my mirrors [mirrors, F], laid out by owner.
        """
        due = self.dues(step)[0] if due is None else due
        self.first, self.kind = step if self.first is None else self.first, kind
        if not self.stages.delay or (self.queue and self.queue[0].due <= step):
            self.reader.release()
        where = Where(self.id.site, self.id.label, step, kind)
        keys = [self._draw_key(step, q) for q in range(self.transport.size)] if self.stages.select.chance else []
        blocks, mine = self.sender.choose(self.sender.lay_out(rows, links), step, step == self.first, keys)
        theirs, levels = self._hear(mine, links, step, where)
        blocks, writers, readers = self._agree(blocks, links, step, where)
        could = [len(block) for block in blocks]
        self.share = sum(n if picks is None else len(picks) for n, picks in zip(could, mine, strict=True)), sum(could)
        leaving = [
            self.sender.encode(q, block.take(mine[q]), self._key(step, q), writers[q])
            if q != self.transport.rank
            else rows[:0]
            for q, block in enumerate(blocks)
        ]
        filled = None
        if self.coding is not None:
            filled = [codec.filled(count) for codec, count in zip(writers, could, strict=True)]
        message = self._expect((step, due), links, theirs, rows, readers)
        message.levels = levels
        message.leaving = [rows, *leaving] if self.id.leg == GATHER else leaving  # rows lie in an `outbox`
        # Gradients are ready right before the workers sum those of the weights. Unless the next step needs them, they
        # are sent after that sum; rows are ready earlier and are sent at once, so that the link is never idle.
        later = due > step + 1 and self.id.pass_ == BACKWARD
        message.pending = self.transport.exchange(leaving, message.parts, where, later=later, rows=filled)
        self.queue.append(message)

    def take(self, step: int) -> Tensor | None:
        """Return the others' rows as they are held at this step, laid out as `Reader.layout` says.

        None before the first are due.
        """
        while self.queue and self.queue[0].due <= step:
            message = self.queue.popleft()
            self._finish(message)
            self.reader.merge(message)
            for part in message.parts:
                if message.block is None:
                    self.buffers.give(part)
        if self.reader.layout is None:
            return None
        self._count_ages(step)
        return self.reader.rows

    def add(self, taken: Tensor, out: Tensor) -> None:
        """Add, in a gather, the boundary rows that `take` returned to the rows ``out`` [n, F] that they belong to."""
        layout = self.reader.layout
        assert layout is not None, "rows are added after they were taken"
        for boundary, rows in zip(layout.send_rows, layout.boundary.split(taken), strict=True):
            if len(boundary):
                kernels.scatter_add_rows(out, boundary, rows.to(out.dtype))

    def carried(self, links: Links) -> Links:
        """Return the links over which rows of these links travel."""
        return links

    def reads(self, links: Links) -> bool:
        """Return whether the rows that were taken last are those of these links."""
        return self.reader.layout is links

    def held(self, rows: Tensor, links: Links) -> None:
        """Overwrite my rows [n, F] that others mirror by what the readers hold, where that is remembered."""
        if self.sender.remembers and not self.stages.feedback:  # which remembers errors instead
            for q, at in enumerate(self.carried(links).send_rows):
                rows[at.long()] = self.sender.held_by(q).to(rows.dtype)

    def drain(self) -> None:
        """Wait for everything under way; rows that are not yet due stay for their step."""
        for message in self.queue:
            self._finish(message)

    def _count_ages(self, step: int) -> None:
        rows = len(self.reader.rows)
        if rows and self.kind != PROBE:
            mean, greatest = self.reader.ages(step)
            self.transport.ledger.used(rows, mean * rows, greatest)

    def _hear(self, mine: Picks, links: Links, step: int, where: Where) -> tuple[Picks, list[Tensor]]:
        """Return which rows come from each peer and, where they were drawn, with what chance (`Select.levels`).

        The clock says so, or the peer announces it: in one bit per row or, where they were drawn, in one byte.
        """
        select, everyone = self.sender.select, range(self.transport.size)
        if not select.compares:
            return [None if step == self.first or select.by_clock(q, step) else links.nothing for q in everyone], []
        leaving, arriving = links.leaving(self.id.leg), links.arriving(self.id.leg)
        said = []
        for count, picks in zip(leaving.counts, mine, strict=True):
            comes = torch.zeros(count, dtype=torch.bool, device=links.device)
            comes[slice(None) if picks is None else picks.long()] = True
            said.append(comes)
        levels = self.sender.levels
        drawn = bool(levels)
        if drawn:
            said = [level * comes for level, comes in zip(levels, said, strict=True)]
            heard = [torch.empty(count, dtype=torch.uint8, device=links.device) for count in arriving.counts]
        else:
            said = [bits.pack(comes) for comes in said]
            heard = [bits.room(count, links.device) for count in arriving.counts]
        self.transport.exchange(said, heard, where._replace(kind="ids")).wait()
        if drawn:
            return [bits.numbers(part) for part in heard], [part[part > 0] for part in heard]
        return [bits.numbers(bits.unpack(part, n)) for part, n in zip(heard, arriving.counts, strict=True)], []

    def _agree(self, blocks: list[Leaving], links: Links, step: int, where: Where) -> tuple[list[Leaving], Each, Each]:
        """Return the blocks, the codec of each, and that of what each peer sends; tell each other, if need be."""
        if self.coding is None:
            same = [self.stages.encode] * len(blocks)
            return blocks, same, same
        assert self.first is not None, "a channel posts before it agrees"
        blocks = [Leaving(block.rows(), None, block.positions) for block in blocks]
        age = step - self.first
        mine = self.coding.choose(age, [block.x for block in blocks])
        theirs = None if mine is None else self._tell(mine, links, where)
        return blocks, *self.coding.codecs(age, mine, theirs)

    def _tell(self, codes: list[Tensor], links: Links, where: Where) -> list[Tensor]:
        """Tell readers how each row is written, two bits per row; return what the others tell."""
        counts = links.arriving(self.id.leg).counts
        heard = [torch.cat([bits.room(count, links.device)] * 2) for count in counts]
        said = [bits.pack_codes(each) for each in codes]
        self.transport.exchange(said, heard, where._replace(kind="ids")).wait()
        return [bits.unpack_codes(part, count) for part, count in zip(heard, counts, strict=True)]

    def _expect(self, when: tuple[int, int], links: Links, picks: Picks, rows: Tensor, codecs: Each) -> Message:
        """Return the message that will arrive, with memory for it; ``when``: the steps of sending and of use."""
        counts, width, dtype = arriving_counts(links.arriving(self.id.leg), picks), rows.shape[1], rows.dtype
        block = None
        if self.stages.plain:
            block = self.buffers.take((sum(counts) + self._room_after(links), width), dtype)
            parts = Ends(counts).split(block)
        else:
            rooms = [codec.room(count, width, dtype) for codec, count in zip(codecs, counts, strict=True)]
            parts = [self.buffers.take(*room) for room in rooms]
        return Message(*when, links, picks, width, dtype, counts, parts, block, codecs)

    def _room_after(self, links: Links) -> int:
        """Return for how many more rows there is memory after those that arrive over these links."""
        return 0

    def _finish(self, message: Message) -> None:
        if message.pending is not None:
            message.pending.wait()
            for tensor in message.leaving:
                self.buffers.give(tensor)
            message.pending, message.leaving = None, []

    def _draw_key(self, step: int, peer: int) -> int:
        """Return the key by which rows for a peer are drawn, the same for rows and, the other way, their gradients.

        So the gradient of a sum is sent together with the sum itself.
        """
        rank = self.transport.rank
        reader, owner = (rank, peer) if self.id.leg == GATHER else (peer, rank)
        return kernels.stream(self.seed, DRAWS, step, self.id.site, self.id.way, reader, owner)

    def _key(self, step: int, peer: int) -> int:
        """Return the key of the random draws for one message."""
        return kernels.stream(self.seed, step, self.id.site, self.id.number, self.transport.rank, peer)
