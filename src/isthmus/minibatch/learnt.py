"""Learnt rows of a batch's nodes: read from their owners at every step, and updated there by the step's gradients.

They are never cached and never read ahead, so a step sees the updates of all steps before it, and a run has the same
rows for any number of workers, up to rounding. Hogwild rows (as in DistDGL) are read and updated without waiting.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from isthmus.comm import Transport, Where
from isthmus.comm.rpc import Handle
from isthmus.device import on_host
from isthmus.features.embedding import Embedding
from isthmus.features.server import StoreOptions
from isthmus.features.store import Store
from isthmus.minibatch.requests import Asked, Requests
from isthmus.partition import Book, shares

NAME = "embedding"


class LearntRows(Protocol):
    """The learnt rows of all nodes, as a training loop uses them: every step pulls once, then pushes once."""

    def pull(self, nodes: Tensor, step: int) -> Tensor:
        """Return the rows of nodes (int64 [m], book ids, distinct), [m, width]."""

    def push(self, gradients: Tensor, step: int) -> None:
        """Update the rows that were pulled last by their gradients [m, width]."""

    def settle(self) -> None:
        """Return when no update of this worker's is under way."""

    def close(self) -> None:
        """Disconnect."""


def learnt_rows(table: Embedding, book: Book, transport: Transport) -> LearntRows:
    """Return the way to learnt rows that the table's config asks for; every worker calls it at the same time."""
    if table.config.hogwild:
        return Hogwild(table, Store(book, transport, StoreOptions("owner")))
    blocks = shares(book, transport.size)
    ranges = torch.tensor([*(book.ranges[block.start] for block in blocks), book.nodes])
    return InLockStep(table, Requests(transport, ranges))


class InLockStep:
    """Learnt rows by requests that all workers make at the same time; owners sum gradients in the order of workers."""

    def __init__(self, table: Embedding, requests: Requests):
        self.table, self.requests = table, requests
        self._asked: Asked | None = None

    def pull(self, nodes: Tensor, step: int) -> Tensor:
        where = Where(NAME, "pull", step, "features")
        asked = self._asked = self.requests.ask(on_host(nodes), where)
        rows = [self.table.rows[wanted.long()] for wanted in asked.theirs]
        block = self.requests.answer(rows, asked.mine.counts, where)
        out = torch.empty_like(block)
        out[asked.mine.order] = block
        return out

    def push(self, gradients: Tensor, step: int) -> None:
        assert self._asked is not None, "rows are pulled before their gradients are pushed"
        asked, self._asked = self._asked, None
        leaving = gradients[asked.mine.order].split(asked.mine.counts)
        where = Where(NAME, "push", step, "gradients")
        arrived = self.requests.answer(list(leaving), asked.their_counts, where)
        self.table.apply(torch.cat(asked.theirs).long(), arrived)

    def settle(self) -> None:
        """Do nothing: updates are over when `push` returns."""

    def close(self) -> None:
        """Do nothing: the connections are the loop's."""


class Hogwild:
    """Learnt rows by the store: read as they are, updated as gradients arrive, whoever is at which step."""

    def __init__(self, table: Embedding, store: Store):
        self.store, self._nodes = store, torch.empty(0, dtype=torch.int64)
        store.add(NAME, table)
        self._under_way: Handle[None] | None = None

    def pull(self, nodes: Tensor, step: int) -> Tensor:
        self._nodes = on_host(nodes)
        return self.store.pull(NAME, self._nodes, step).wait()

    def push(self, gradients: Tensor, step: int) -> None:
        self.settle()  # one step's updates are under way at most
        self._under_way = self.store.push(NAME, self._nodes, gradients, step)

    def settle(self) -> None:
        if self._under_way is not None:
            self._under_way.wait()
            self._under_way = None

    def close(self) -> None:
        self.store.close()
