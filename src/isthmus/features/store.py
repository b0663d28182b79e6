"""The store: rows and neighbours of all parts behind one interface, wherever they lie.

Parts whose files are on this machine are read where they lie, in memory-mapped files; the others are asked from the
workers that own them, at any time and from any thread (`comm.rpc`). A request is under way until its handle is waited
for::

    handle = store.pull("x", ids, step)  # int64 [m], book ids
    rows = handle.wait()                 # [m, F]

`isthmus train` makes its batches in lock-step and needs no store; loops of one's own and schedulers do.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import torch
from torch import Tensor

from isthmus.comm import Codec, Ledger, Transport, Where
from isthmus.comm.rpc import MOST_OF_A_REQUEST, Handle, Service
from isthmus.comm.rpc.handle import Reply
from isthmus.errors import InputError
from isthmus.features.embedding import Embedding
from isthmus.features.server import StoreOptions, StoreServer, as_tensors
from isthmus.features.tables import dense
from isthmus.kernels import Csr
from isthmus.partition import Book
from isthmus.sample import Expansion, NeighbourSampler

_MOST_OF_AN_ANSWER = 1 << 23  # bytes; larger ones would keep others waiting, and memory busy
_ROOM = MOST_OF_A_REQUEST // 2


class _Asked(NamedTuple):
    """One request: the worker that is asked, where its answer belongs, and the answer."""

    peer: int
    places: Tensor  # int64
    reply: Reply


class Store:
    """The data of all nodes and edges, as one worker sees them. Every worker opens its own at the same time.

    Ids are book ids: part k has those of ``book.ranges``. Any thread may use it.
    """

    def __init__(self, book: Book, transport: Transport, options: StoreOptions | None = None):
        self.options = options or StoreOptions()
        self.server = StoreServer(book, transport, self.options)
        self.rank, self.size, self.timeout = transport.rank, transport.size, transport.timeout
        self.ledger = Ledger()
        """What other workers answered, by name and worker, and rows of other workers that were read from files."""
        self._counting = threading.Lock()
        self.service = Service(transport, self.server.answer) if self.size > 1 else None

    def pull(self, name: str, ids: Tensor, step: int = 0) -> Handle[Tensor]:
        """Ask for rows of nodes (int64 [m], book ids), [m, …]: ``x``, ``y``, a mask, or a learnt embedding.

        Learnt rows are those after the updates of all steps before ``step``.
        """
        server, like = self.server, self.server.like(name)
        learnt = server.embeddings.get(name)
        if learnt is not None:
            owner = server.owner(ids)
            mine = owner == self.rank
        else:
            part = server.tables[name].part_of(ids)
            owner, mine = server.owner_of_part[part], server.here[part]
        codec = server.codec(name)
        width, dtype = codec.form(like.shape[1], like.dtype) if like.ndim == 2 else (1, like.dtype)
        asked = self._ask("pull", name, ids, _elsewhere(owner, mine), step, width * dtype.itemsize, {"name": name})
        out = like.new_empty(len(ids), *like.shape[1:])  # what is here is read while the rest is under way
        at = mine.nonzero().flatten()
        if learnt is not None:
            out[at] = learnt.read(ids[at] - server.ranges[self.rank], step, self.timeout)
        elif len(at):
            server.tables[name].take(ids[at], out, at)
            self._count_local(int((owner[at] != self.rank).sum()))

        def join(answers: list[list[Tensor]]) -> Tensor:
            for one, answer in zip(asked, answers, strict=True):
                self._count(Where(name, "pull", step, "features"), one.peer, len(one.places), answer)
                out[one.places] = _rows(answer, like, codec)
            return out

        return Handle([one.reply for one in asked], join, self.timeout)

    def push(self, name: str, ids: Tensor, gradients: Tensor, step: int = 0) -> Handle[None]:
        """Send gradients [m, width] of learnt rows (int64 [m], book ids) to the owners, who update the rows.

        Each worker pushes once a step, if only for no rows at all: when all have, owners sum what came, in the order of
        workers, and the rows of the next step can be pulled. Hogwild tables are updated as gradients arrive.
        """
        server, table = self.server, self.server.embeddings.get(name)
        if table is None:
            raise InputError(f"the store has no embedding {name!r}: make it with worker.embedding")
        if gradients.shape != (len(ids), table.width):
            raise InputError(f"{name} has rows of {table.width}: give gradients [{len(ids)}, {table.width}]")
        owner, replies = server.owner(ids), list[Reply]()
        most = max(1, _ROOM // (table.width * gradients.element_size() + 8))
        for i in range(1, self.size):
            q = (self.rank + i) % self.size
            pieces = (owner == q).nonzero().flatten().split(most)
            for number, some in enumerate(pieces):
                tensors = [ids[some], gradients[some]]
                self._count(Where(name, "push", step, "gradients"), q, len(some), tensors)
                about = {"name": name, "last": number + 1 == len(pieces)}
                replies.append(self._service.ask(q, f"push {name}", step, about, tensors))
        mine = owner == self.rank
        table.wait_for(step, self.timeout)
        if table.add(self.rank, ids[mine] - server.ranges[self.rank], gradients[mine], step):
            self.again()
        return Handle(replies, lambda answers: None, self.timeout)

    def sample(
        self, ids: Tensor, hop: int, step: int = 0, *, sampler: NeighbourSampler | None = None, edges: bool = False
    ) -> Handle[Expansion]:
        """Ask for neighbours drawn for nodes (int64 [m], book ids) at a hop of a step; neighbours are book ids.

        What a node gets is a function of (seed, step, hop, node), whoever draws. ``sampler``: other than the store's;
        ``edges``: with the numbers of the edges.
        """
        sampler, server = sampler or self.options.sampler, self.server
        if sampler is None:
            raise InputError("this store has no sampler: open it with StoreOptions(sampler=…), or give one")
        owner = server.owner(ids)
        mine = owner == self.rank if not server.whole else torch.ones_like(owner, dtype=torch.bool)
        about = {"sampler": asdict(sampler), "hop": hop, "edges": edges}
        each = 24 * (sampler.fanouts[hop] + 1) if sampler.fanouts[hop] >= 0 else 1024
        asked = self._ask("sample", f"hop {hop}", ids, _elsewhere(owner, mine), step, each, about)
        at = mine.nonzero().flatten()
        own = sampler.expand(server.structure, ids[at], step, hop, edges=edges)

        def join(answers: list[list[Tensor]]) -> Expansion:
            for one, answer in zip(asked, answers, strict=True):
                self._count(Where(f"hop {hop}", "sample", step, "ids"), one.peer, 0, answer)
            places = torch.cat([at, *(one.places for one in asked)])
            return _joined([as_tensors(own), *answers], places, own.weight is not None, edges)

        return Handle([one.reply for one in asked], join, self.timeout)

    def pull_edges(self, name: str, edges: Tensor, step: int = 0) -> Handle[Tensor]:
        """Ask for what edges (int64 [e]) carry, ``edge_attr``, [e] or [e, D]; the store was opened with ``edge_data``.

        Edges are numbered by (target, source) in original ids, as in the graph before it was cut.
        """
        if name != "edge_attr":
            raise InputError(f"the store has no {name!r} of edges: it has edge_attr")
        server = self.server
        owner = server.owner(server.targets(edges))
        mine = owner == self.rank if not server.whole else torch.ones_like(owner, dtype=torch.bool)
        like = server.edge_data[:1]
        asked = self._ask("edges", name, edges, _elsewhere(owner, mine), step, like.nbytes, {})
        out = like.new_empty(len(edges), *like.shape[1:])
        out[mine] = server.data_of(edges[mine])

        def join(answers: list[list[Tensor]]) -> Tensor:
            for one, (data,) in zip(asked, answers, strict=True):
                self._count(Where(name, "pull", step, "features"), one.peer, len(one.places), [data])
                out[one.places] = data
            return out

        return Handle([one.reply for one in asked], join, self.timeout)

    def add(self, name: str, table: Embedding) -> None:
        """Add this worker's shard of a learnt embedding; all workers do so before any asks for it."""
        self.server.embeddings[name] = table

    def again(self) -> None:
        """Answer those that waited for an update of learnt rows."""
        if self.service is not None:
            self.service.again()

    def close(self) -> None:
        """Disconnect; no other worker may need this one any more."""
        if self.service is not None:
            self.service.close()

    @property
    def _service(self) -> Service:
        assert self.service is not None, "a single worker owns everything"
        return self.service

    def _ask(
        self, kind: str, name: str, ids: Tensor, owner: Tensor, step: int, size: int, about: dict[str, Any]
    ) -> list[_Asked]:
        """Ask the owner of each id (-1: nobody), in requests with answers of bounded size; ``size``: bytes per id."""
        asked, most = list[_Asked](), max(1, min(_ROOM // 8, _MOST_OF_AN_ANSWER // max(size, 1)))
        for q in owner.unique().tolist():
            for some in (owner == q).nonzero().flatten().split(most) if q >= 0 else ():
                asked.append(_Asked(q, some, self._service.ask(q, f"{kind} {name}", step, about, [ids[some]])))
        return asked

    def _count(self, where: Where, peer: int, rows: int, tensors: Sequence[Tensor]) -> None:
        with self._counting:
            self.ledger.sent(where, peer, rows, sum(one.numel() * one.element_size() for one in tensors))

    def _count_local(self, rows: int) -> None:
        with self._counting:
            self.ledger.rows_local += rows


def _elsewhere(owner: Tensor, mine: Tensor) -> Tensor:
    return torch.where(mine, -1, owner)


def _rows(answer: list[Tensor], like: Tensor, codec: Codec) -> Tensor:
    """Return the rows of an answer: as they are, coded, or sparse."""
    if len(answer) == 3:
        lengths, columns, values = answer
        return dense(lengths, columns, values, like.shape[1])
    (message,) = answer
    if codec.as_is:
        return message
    rows = like.new_empty(len(message), like.shape[1])
    codec.decode(message, rows)
    return rows


def _joined(messages: list[list[Tensor]], places: Tensor, weighted: bool, edges: bool) -> Expansion:
    """Return the expansion of a frontier from those of pieces of it, whose nodes have these places."""
    counts, neighbours, scale, *rest = (torch.cat(columns) for columns in zip(*messages, strict=True))
    back = places.argsort()
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    found, at = Csr(indptr, neighbours, 0).take(back)
    rest = [one[at] for one in rest]
    weight = rest.pop(0) if weighted else None
    return Expansion(found.indptr, found.indices, scale[back], weight, rest.pop(0) if edges else None)
