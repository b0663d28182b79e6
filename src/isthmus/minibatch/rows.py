"""The rows of a batch's nodes: those of this machine are read in place, cached ones are here, others are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import AsIs, Codec, Ledger, Pending, Where, codec
from isthmus.features.part_files import PartFiles
from isthmus.kernels import SparseMatrix
from isthmus.kernels.buffers import Buffers
from isthmus.minibatch.cache import Cache, Change
from isthmus.minibatch.requests import Asked, Requests


@dataclass
class Rows:
    """The fixed rows of all nodes; this worker has its own, ``own`` [n, F]. Every worker pulls at the same time."""

    own: Tensor | SparseMatrix
    requests: Requests
    codec: Codec = field(default_factory=AsIs)
    seed: int = 0
    cache: Cache | None = None
    dtype: torch.dtype | None = None
    """bfloat16: rows are rounded to it where they are gathered, and so they travel; None: as they are."""
    files: PartFiles | None = None
    """Rows of other workers that are read from their files."""
    asks: bool = True
    """Whether any worker ever asks another one; if not, nobody sends or waits."""
    memory: Buffers = field(default_factory=Buffers)

    def __post_init__(self) -> None:
        if self.dtype == torch.bfloat16 and self.codec.as_is:
            self.codec = codec("bf16")

    @property
    def width(self) -> int:
        return self.own.shape[1]

    def pull(self, nodes: Tensor, step: int, name: str = "features") -> Tensor:
        """Return the rows of nodes (int64 [m], book ids), [m, F]."""
        return self.ask(nodes, step, name).wait(self.requests.transport.ledger)

    def ask(self, nodes: Tensor, step: int, name: str = "features", coming: Sequence[Tensor] = ()) -> Pulled:
        """Ask for the rows of nodes (int64 [m], book ids), which then are under way; read those that are here.

        ``coming``: the nodes that the next steps will read, for a cache that wants to know.
        """
        out = self.none(len(nodes))
        if not self.width:  # of a graph without features there is nothing to ask for
            return Pulled(out)
        others = self.read_here(nodes, out)
        self.requests.transport.ledger.rows_local += self.from_files(nodes, len(others))
        kind = "features" if self.own.dtype.is_floating_point else "ids"
        fetched = self.fetch(nodes[others], Where(name, "pull", step, kind))
        change = self.cache.learn(nodes[others], coming) if self.cache is not None else None
        return Pulled(out, others, fetched, change)

    def read_here(self, nodes: Tensor, out: Tensor) -> Tensor:
        """Write the rows that are mine, or in files here, to their places in ``out`` [m, F]; return other places."""
        first = self.requests.first
        if isinstance(self.own, SparseMatrix):
            mine = (nodes >= first) & (nodes < first + len(self.own))
            out[mine] = self.own.take(nodes[mine] - first).dense().to(out.dtype)
            others = (~mine).nonzero().flatten()
        else:
            others = kernels.gather_held(self.own, nodes, first, out)
        return others if self.files is None else self.files.read(nodes, others, out)

    def from_files(self, nodes: Tensor, elsewhere: int) -> int:
        """Return how many rows of nodes are read from files of other workers, if so many are not on this machine."""
        if self.files is None:
            return 0
        own = self.requests.own
        return int(((nodes < own.start) | (nodes >= own.stop)).sum()) - elsewhere

    def fetch(self, nodes: Tensor, where: Where) -> Fetched:
        """Ask for rows that are not here, as all workers do at the same time; those that are cached need no asking."""
        missing, transport = torch.arange(len(nodes)), self.requests.transport
        fetched = Fetched(self)
        if self.cache is not None:
            place = self.cache.find(nodes)
            hit = place >= 0
            fetched.cached = missing[hit], place[hit]
            missing = missing[~hit]
            transport.ledger.cache_hits += len(nodes) - len(missing)
            transport.ledger.cache_misses += len(missing)
        if transport.size > 1 and self.asks:
            asked = self.requests.ask(nodes[missing], where)
            fetched.asked = missing[asked.mine.order], *self._answer(asked, where)
        return fetched

    def _answer(self, asked: Asked, where: Where) -> tuple[Tensor, Pending]:
        """Answer what was asked of me; return the memory of the rows that I asked for, grouped by owner."""
        width, dtype = self.codec.form(self.width, self.own.dtype)
        answers = []
        for q, rows in enumerate(asked.theirs):
            message = torch.empty(len(rows), width, dtype=dtype)
            key = kernels.stream(self.seed, where.step, self.requests.transport.rank, q)
            if len(rows):
                self._encode(rows, message, key)
            answers.append(message)
        return self.requests.post(answers, asked.mine.counts, where)

    def decoded(self, block: Tensor) -> Tensor:
        """Return rows as batches have them, from a block of messages."""
        arrived = self.none(len(block))
        if not len(block) or block.dtype == arrived.dtype:
            return block if len(block) else arrived
        self.codec.decode(block, arrived)
        return arrived

    def _encode(self, rows: Tensor, message: Tensor, key: int) -> None:
        if isinstance(self.own, SparseMatrix):
            self.codec.encode(self.own.take(rows.long()).dense(), None, message, key, None)
        else:
            self.codec.encode(self.own, rows, message, key, None)

    def none(self, count: int) -> Tensor:
        """Return memory for some rows as batches have them."""
        return self.memory.lend((count, self.width), self.dtype or self.own.dtype)


@dataclass
class Fetched:
    """Rows of other workers: some are kept here, the others under way."""

    rows: Rows
    cached: tuple[Tensor, Tensor] | None = None  # int64: places among the nodes, places in the cache
    asked: tuple[Tensor, Tensor, Pending] | None = None  # places among the nodes (int64), the messages, under way

    def wait(self, ledger: Ledger) -> list[tuple[Tensor, Tensor]]:
        """Return the rows in blocks, each with the places of its rows among the nodes; in order of steps.

        ``ledger`` counts the time. It need not be the thread that asked which waits.
        """
        found = []
        if self.cached is not None:
            at, place = self.cached
            assert self.rows.cache is not None
            found.append((at, kernels.gather_rows(self.rows.cache.rows, place)))
        if self.asked is not None:
            at, block, under_way = self.asked
            under_way.ledger = ledger
            under_way.wait()
            found.append((at, self.rows.decoded(block)))
        return found


@dataclass
class Pulled:
    """The rows of a batch: those that are here, and those that were fetched."""

    out: Tensor
    others: Tensor | None = None  # int64, places of what was fetched
    fetched: Fetched | None = None
    change: Change | None = None

    def wait(self, ledger: Ledger) -> Tensor:
        """Return all rows, [m, F]; ``ledger`` counts the time."""
        if self.fetched is None or self.others is None:
            return self.out
        for at, rows in self.fetched.wait(ledger):
            self.out[self.others[at]] = rows
        cache = self.fetched.rows.cache
        if self.change is not None and cache is not None:
            cache.apply(self.change, self.out[self.others])
        return self.out
