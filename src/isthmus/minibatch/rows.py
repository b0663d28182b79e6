"""The rows of a batch's nodes: own rows are read in place, cached ones are here, others come from their owners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import AsIs, Codec, Where, codec
from isthmus.kernels import SparseMatrix
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
        transport, first = self.requests.transport, self.requests.first
        where = Where(name, "pull", step, "features")
        mine = (nodes >= first) & (nodes < first + len(self.own))
        # One pass over all rows: those of others are overwritten below.
        out = self._gather(torch.where(mine, nodes - first, 0)) if len(self.own) else self._none(len(nodes))
        missing = others = (~mine).nonzero().flatten()
        if self.cache is not None:
            missing = self._from_cache(nodes, others, out)
        asked = self.requests.ask(nodes[missing], where) if transport.size > 1 else None
        if asked is not None:
            self._exchange(asked, where, out, missing)
        if self.cache is not None and coming:
            self.cache.learn(nodes[others], out[others], coming)
        return out

    def _from_cache(self, nodes: Tensor, missing: Tensor, out: Tensor) -> Tensor:
        """Fill in the rows that are cached; return the places of those that are not."""
        assert self.cache is not None
        place, ledger = self.cache.find(nodes[missing]), self.requests.transport.ledger
        hit = place >= 0
        if hit.any():
            out[missing[hit]] = self.cache.rows[place[hit]]
        ledger.cache_hits += int(hit.sum())
        ledger.cache_misses += int((~hit).sum())
        return missing[~hit]

    def _exchange(self, asked: Asked, where: Where, out: Tensor, places: Tensor) -> None:
        width, dtype = self.codec.form(self.width, self.own.dtype)
        answers = []
        for q, rows in enumerate(asked.theirs):
            message = torch.empty(len(rows), width, dtype=dtype)
            key = kernels.stream(self.seed, where.step, self.requests.transport.rank, q)
            if len(rows):
                self._encode(rows, message, key)
            answers.append(message)
        block = self.requests.answer(answers, asked.mine.counts, where)
        if len(block):
            arrived = block
            if block.dtype != out.dtype:
                self.codec.decode(block, arrived := out.new_empty(len(block), self.width))
            out[places[asked.mine.order]] = arrived

    def _encode(self, rows: Tensor, message: Tensor, key: int) -> None:
        if isinstance(self.own, SparseMatrix):
            self.codec.encode(self.own.take(rows.long()).dense(), None, message, key, None)
        else:
            self.codec.encode(self.own, rows, message, key, None)

    def _gather(self, rows: Tensor) -> Tensor:
        """Return some of my rows (int32 or int64), dense."""
        if isinstance(self.own, SparseMatrix):
            return self.own.take(rows.long()).dense().to(self.dtype or self.own.dtype)
        return kernels.gather_rows(self.own, rows, self._none(len(rows)))

    def _none(self, count: int) -> Tensor:
        return torch.empty(count, self.width, dtype=self.dtype or self.own.dtype)
