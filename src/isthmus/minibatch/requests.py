"""Requests in lock-step: every worker asks the owners of nodes for something, and answers what others ask of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.comm import Pending, Transport, Where
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
        return Asked(mine, self.transport.trade(mine.rows, where._replace(kind="ids")))

    def answer(self, answers: list[Tensor], counts: list[int], where: Where) -> Tensor:
        """Send each worker its answer, and return the answers to my questions, ``counts[q]`` rows from worker q."""
        block, under_way = self.post(answers, counts, where)
        under_way.wait()
        return block

    def post(self, answers: list[Tensor], counts: list[int], where: Where) -> tuple[Tensor, Pending]:
        """Send each worker its answer; return the memory of the answers to my questions, which are under way."""
        like = answers[0]
        block = like.new_empty(sum(counts), *like.shape[1:])
        parts = Ends(counts).split(block)
        parts[self.transport.rank].copy_(answers[self.transport.rank])
        return block, self.transport.exchange(answers, parts, where)
