"""The rows of a batch's nodes: those of this machine are read in place, cached ones are here, others are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import AsIs, Codec, Where, codec
from isthmus.features.part_files import PartFiles
from isthmus.kernels import SparseMatrix
from isthmus.kernels.buffers import Buffers
from isthmus.minibatch.cache import Cache
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

    def pull(self, nodes: Tensor, step: int, name: str = "features", coming: Sequence[Tensor] = ()) -> Tensor:
        """Return the rows of nodes (int64 [m], book ids), [m, F].

        ``coming``: the nodes that the next steps will read, for a cache that wants to know.
        """
        if not self.width:  # of a graph without features there is nothing to ask for
            return self.none(len(nodes))
        out = self.none(len(nodes))
        others = self.read_here(nodes, out)
        self.requests.transport.ledger.rows_local += self.from_files(nodes, len(others))
        kind = "features" if self.own.dtype.is_floating_point else "ids"
        for at, rows in self.fetch(nodes[others], Where(name, "pull", step, kind)):
            out[others[at]] = rows
        if self.cache is not None and coming:
            self.cache.learn(nodes[others], out[others], coming)
        return out

    def read_here(self, nodes: Tensor, out: Tensor) -> Tensor:
        """Write the rows that are mine, or in files here, to their places in ``out`` [m, F]; return other places."""
        first = self.requests.first
        mine = (nodes >= first) & (nodes < first + len(self.own))
        if len(self.own):  # one pass over all places: those of others are overwritten later
            self._gather(torch.where(mine, nodes - first, 0), out)
        others = (~mine).nonzero().flatten()
        return others if self.files is None else self.files.read(nodes, others, out)

    def from_files(self, nodes: Tensor, elsewhere: int) -> int:
        """Return how many rows of nodes are read from files of other workers, if so many are not on this machine."""
        if self.files is None:
            return 0
        own = self.requests.own
        return int(((nodes < own.start) | (nodes >= own.stop)).sum()) - elsewhere

    def fetch(self, nodes: Tensor, where: Where) -> list[tuple[Tensor, Tensor]]:
        """Return rows that are not here in blocks, each with the places of its rows among the nodes.

        Those that are cached are here; the others are asked for, by all workers at the same time.
        """
        found, missing, transport = list[tuple[Tensor, Tensor]](), torch.arange(len(nodes)), self.requests.transport
        if self.cache is not None:
            place = self.cache.find(nodes)
            hit = place >= 0
            found.append((missing[hit], self.cache.rows[place[hit]]))
            missing = missing[~hit]
            transport.ledger.cache_hits += len(nodes) - len(missing)
            transport.ledger.cache_misses += len(missing)
        if transport.size > 1 and self.asks:
            asked = self.requests.ask(nodes[missing], where)
            found.append((missing[asked.mine.order], self._exchange(asked, where)))
        return found

    def _exchange(self, asked: Asked, where: Where) -> Tensor:
        """Answer what was asked of me; return the rows that I asked for, grouped by owner."""
        width, dtype = self.codec.form(self.width, self.own.dtype)
        answers = []
        for q, rows in enumerate(asked.theirs):
            message = torch.empty(len(rows), width, dtype=dtype)
            key = kernels.stream(self.seed, where.step, self.requests.transport.rank, q)
            if len(rows):
                self._encode(rows, message, key)
            answers.append(message)
        block = self.requests.answer(answers, asked.mine.counts, where)
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

    def _gather(self, rows: Tensor, out: Tensor) -> Tensor:
        """Write some of my rows (int32 or int64), dense, to ``out``; return it."""
        if isinstance(self.own, SparseMatrix):
            return out.copy_(self.own.take(rows.long()).dense())
        return kernels.gather_rows(self.own, rows, out)

    def none(self, count: int) -> Tensor:
        """Return memory for some rows as batches have them."""
        return self.memory.lend((count, self.width), self.dtype or self.own.dtype)
