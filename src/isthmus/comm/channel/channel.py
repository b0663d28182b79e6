"""The channel: the way of the rows of one site in one direction, from their owners into what a reader holds of them.

    select → encode → ship → (wait) → decode → merge

Its stages (`Stages`) are a recipe's choice. Its state (what is held, what is under way, what others hold of my rows) is
part of a checkpoint.
"""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import flags
from isthmus.comm.channel.buffers import Buffers
from isthmus.comm.channel.reader import Message, Reader, arriving_counts
from isthmus.comm.channel.select import Picks
from isthmus.comm.channel.sender import NOTHING, Sender
from isthmus.comm.channel.stages import Stages
from isthmus.comm.ledger import PROBE, Where
from isthmus.comm.links import FORWARD, Ends, Links
from isthmus.comm.transport import Transport


class Channel:
    """One site, one direction: `post` sends this step's rows, `take` gives what is held of the others' rows."""

    def __init__(
        self, transport: Transport, stages: Stages, whole: Links, site: int, direction: str, seed: int, buffers: Buffers
    ):
        self.transport, self.stages, self.site, self.direction, self.seed = transport, stages, site, direction, seed
        self.buffers = buffers
        self.sender = Sender(stages, direction, transport.rank, whole, buffers)
        self.reader = Reader(stages, direction, whole, buffers)
        self.queue: deque[Message] = deque()
        self.first: int | None = None  # the step of the first post
        self.kind = ""  # of what was posted last

    def outbox(self, rows: int, width: int, dtype: torch.dtype) -> Tensor:
        """Memory for a block that will be posted: it leaves from there without another copy."""
        return self.buffers.take((rows, width), dtype)

    def dues(self, step: int) -> range:
        """The steps that use what is sent now. After a warm start the first rows serve until delayed ones are due."""
        delay = self.stages.delay
        begin = step if self.stages.warm and self.first in (None, step) else step + delay
        return range(begin, step + delay + 1)

    def post(self, step: int, rows: Tensor, links: Links, kind: str, due: int | None = None) -> None:
        """Sends rows, to be used at step ``due`` (by default the first of `dues`), and returns at once.

        Forward, ``rows`` are inner rows [n, F]; backward, gradients of halo rows [h, F] laid out by owner.
        """
        due = self.dues(step)[0] if due is None else due
        self.first, self.kind = step if self.first is None else self.first, kind
        if not self.stages.delay or (self.queue and self.queue[0].due <= step):
            self.reader.release()
        where = Where(self.site, self.direction, step, kind)
        blocks = self.sender.lay_out(rows, links)
        mine = self.sender.select(blocks, step, first=step == self.first)
        theirs = self._hear(mine, links, step, where)
        leaving = [
            self.sender.encode(q, block.take(mine[q]), self._key(step, q)) if q != self.transport.rank else rows[:0]
            for q, block in enumerate(blocks)
        ]
        message = self._expect(step, due, links, theirs, rows)
        message.leaving = [rows, *leaving] if self.direction != FORWARD else leaving
        # Gradients are made right before the weights' are summed. Unless the next step needs them, they go after that
        # sum; rows, made earlier, go at once, so that the link is never idle.
        later = due > step + 1 and self.direction != FORWARD
        message.pending = self.transport.exchange(leaving, message.parts, where, later=later)
        self.queue.append(message)

    def take(self, step: int) -> Tensor | None:
        """What is held of the others' rows at this step, laid out as `layout` says; None before the first are due."""
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

    def add(self, gradients: Tensor, out: Tensor) -> None:
        """Backward: adds what `take` gave, gradients of my boundary rows, to the rows ``out`` [n, F] they belong to."""
        layout = self.reader.layout
        assert layout is not None, "gradients are added after they were taken"
        for boundary, rows in zip(layout.send_rows, layout.boundary.split(gradients), strict=True):
            if len(boundary):
                kernels.scatter_add_rows(out, boundary, rows.to(out.dtype))

    def _count_ages(self, step: int) -> None:
        rows = len(self.reader.rows)
        if rows and self.kind != PROBE:
            ages = self.reader.ages(step)
            self.transport.ledger.used(rows, float(ages.double().mean()) * rows, int(ages.max()))

    def drain(self) -> None:
        """Waits for all that is under way; what is not yet due stays for its step."""
        for message in self.queue:
            self._finish(message)

    def _hear(self, mine: Picks, links: Links, step: int, where: Where) -> Picks:
        """Which rows come from each peer: as the clock says, or as it announces, one bit per row."""
        select, everyone = self.stages.select, range(self.transport.size)
        if not select.compares:
            return [None if step == self.first or select.by_clock(q, step) else NOTHING for q in everyone]
        leaving, arriving = links.leaving(self.direction), links.arriving(self.direction)
        said, heard = [], [flags.room(count) for count in arriving.counts]
        for count, picks in zip(leaving.counts, mine, strict=True):
            comes = torch.zeros(count, dtype=torch.bool)
            comes[slice(None) if picks is None else picks.long()] = True
            said.append(flags.pack(comes))
        self.transport.exchange(said, heard, where._replace(kind="ids")).wait()
        return [flags.unpack(bits, count) for bits, count in zip(heard, arriving.counts, strict=True)]

    def _expect(self, step: int, due: int, links: Links, picks: Picks, rows: Tensor) -> Message:
        """The message that will arrive, and memory for it."""
        counts = arriving_counts(links.arriving(self.direction), picks)
        width, dtype = self.stages.encode.form(rows.shape[1], rows.dtype)
        block = self.buffers.take((sum(counts), width), dtype) if self.stages.plain else None
        if block is not None:
            parts = Ends(counts).split(block)
        else:
            parts = [self.buffers.take((count, width), dtype) for count in counts]
        return Message(step, due, links, picks, rows.shape[1], rows.dtype, parts, block)

    def _finish(self, message: Message) -> None:
        if message.pending is not None:
            message.pending.wait()
            for tensor in message.leaving:
                self.buffers.give(tensor)
            message.pending, message.leaving = None, []

    def _key(self, step: int, peer: int) -> int:
        """Names the draws of one message."""
        forward = int(self.direction == FORWARD)
        return kernels.stream(self.seed, step, self.site, forward, self.transport.rank, peer)
