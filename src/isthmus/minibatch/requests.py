"""Requests in lock-step: every worker asks the owners of nodes for something, and answers what others ask of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.comm import Transport, Where
from isthmus.comm.links import Ends
from isthmus.minibatch.seeds import owner_of


@dataclass(frozen=True)
class ByOwner:
    """Nodes grouped by the worker that owns them."""

    order: Tensor  # int64 [m]: their places before they were grouped
    rows: list[Tensor]  # int32 per worker: the owner's numbers of its rows

    @property
    def counts(self) -> list[int]:
        return [len(rows) for rows in self.rows]


@dataclass(frozen=True)
class Asked:
    """One round of requests: the rows that I ask of each worker, and the rows that each asks of me."""

    mine: ByOwner
    theirs: list[Tensor]  # int32 per worker: my rows

    @property
    def their_counts(self) -> list[int]:
        return [len(rows) for rows in self.theirs]


class Requests:
    """The requests of one worker. Worker q owns the book ids ``ranges[q]:ranges[q+1]``.

    Every worker makes the same calls in the same order, also with nothing to ask.
    """

    def __init__(self, transport: Transport, ranges: Tensor):
        self.transport, self.ranges = transport, ranges

    @property
    def first(self) -> int:
        """The book id of my row 0."""
        return int(self.ranges[self.transport.rank])

    @property
    def own(self) -> slice:
        """The book ids of my rows."""
        return slice(self.first, int(self.ranges[self.transport.rank + 1]))

    def group(self, nodes: Tensor) -> ByOwner:
        """Group nodes (int64, book ids) by their owners."""
        owner = owner_of(nodes, self.ranges)
        order = torch.argsort(owner, stable=True)
        counts = torch.bincount(owner, minlength=self.transport.size)
        rows = (nodes - self.ranges[owner])[order].to(torch.int32)
        return ByOwner(order, list(rows.split(counts.tolist())))

    def ask(self, nodes: Tensor, where: Where) -> Asked:
        """Tell the owners of nodes (int64, book ids) that I ask for them; hear what each worker asks of me."""
        mine = self.group(nodes)
        return Asked(mine, self.send(mine.rows, where))

    def send(self, leaving: list[Tensor], where: Where) -> list[Tensor]:
        """Send each worker, this one too, some numbers, as many as I like; return what each sends to me."""
        where, everyone = where._replace(kind="ids"), range(self.transport.size)
        counts = [torch.tensor([len(part)]) for part in leaving]
        heard = [torch.zeros(1, dtype=torch.int64) for _ in everyone]
        self.transport.exchange(counts, heard, where).wait()
        arriving = [part.new_empty(int(n), *part.shape[1:]) for part, n in zip(leaving, heard, strict=True)]
        arriving[self.transport.rank] = leaving[self.transport.rank]
        self.transport.exchange(leaving, arriving, where).wait()
        return arriving

    def answer(self, answers: list[Tensor], counts: list[int], where: Where) -> Tensor:
        """Send each worker its answer, and return the answers to my questions, ``counts[q]`` rows from worker q."""
        like = answers[0]
        block = like.new_empty(sum(counts), *like.shape[1:])
        parts = Ends(counts).split(block)
        parts[self.transport.rank].copy_(answers[self.transport.rank])
        self.transport.exchange(answers, parts, where).wait()
        return block
