"""CAGNET's transport: every worker's whole block of rows passes every worker, whoever reads it.

Forward, the block of each worker goes round the ring in n − 1 hops of broadcast. Backward is the transpose of that: for
each owner a sum goes round, to which every worker adds its share, and ends at the owner (reduce-scatter).
"""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm.channel.buffers import Buffers
from isthmus.comm.channel.channel import Channel
from isthmus.comm.channel.stages import Stages
from isthmus.comm.ledger import Where
from isthmus.comm.links import FORWARD, Links
from isthmus.comm.transport import Transport


class Ring(Channel):
    """A channel of whole blocks. Rows are sent at once and in full; coded rows are coded again at each hop of a sum."""

    def __init__(
        self,
        transport: Transport,
        stages: Stages,
        whole: Links,
        site: int,
        direction: str,
        seed: int,
        buffers: Buffers,
        num_inner: int,
    ):
        super().__init__(transport, stages, whole, site, direction, seed, buffers)
        self.whole, self.num_inner = whole, num_inner
        self.blocks: list[int] = []  # rows of each worker's block
        self.read: list[Tensor] = []  # per owner, int32: which rows of its block are my halo rows

    def post(self, step: int, rows: Tensor, links: Links, kind: str, due: int | None = None) -> None:
        self.posted, self.where = rows, Where(self.site, self.direction, step, kind)
        if not self.blocks:
            self._prepare()

    def take(self, step: int) -> Tensor:
        """Forward: the halo rows [h, F]. Backward: the sum of all workers' gradients of my rows [n, F]."""
        taken = self._broadcast(step) if self.direction == FORWARD else self._reduce(step)
        self.transport.ledger.used(len(taken), 0.0, 0)
        return taken

    def add(self, gradients: Tensor, out: Tensor) -> None:
        out.add_(gradients)

    def _prepare(self) -> None:
        """Hears how many rows each worker has, and which of them are this one's halo rows."""
        where = self.where._replace(kind="ids")
        sizes = torch.zeros(self.transport.size, dtype=torch.int64)
        sizes[self.transport.rank] = self.num_inner
        self.blocks = self.transport.all_reduce(sizes, where).tolist()
        self.read = [torch.empty(count, dtype=torch.int32) for count in self.whole.halo_counts]
        self.transport.exchange(self.whole.send_rows, self.read, where).wait()

    def _broadcast(self, step: int) -> Tensor:
        """Halo rows are picked from the blocks as they pass."""
        rows = self.posted
        block = rows.new_empty(self.whole.halo.ptr[-1], rows.shape[1])
        pieces, passing = self.whole.halo.split(block), self._encode(rows, step, 0)
        for hop in range(1, self.transport.size):
            owner = (self.transport.rank - hop) % self.transport.size
            passing = self._hop(passing, self.blocks[owner], rows)
            self.stages.encode.decode(kernels.gather_rows(passing, self.read[owner]), pieces[owner])
        return block

    def _reduce(self, step: int) -> Tensor:
        """For each owner a sum passes; every worker adds its share to it."""
        shares = self.whole.halo.split(self.posted)
        total = self.posted.new_zeros(0, self.posted.shape[1])
        for hop in range(1, self.transport.size):
            owner = (self.transport.rank - hop) % self.transport.size
            if hop == 1:
                total = self.posted.new_zeros(self.blocks[owner], self.posted.shape[1])
            kernels.scatter_add_rows(total, self.read[owner], shares[owner])
            passing = self._hop(self._encode(total, step, hop), self.blocks[owner - 1], self.posted)
            total = self.posted.new_empty(self.blocks[owner - 1], self.posted.shape[1])
            self.stages.encode.decode(passing, total)
        return total if len(total) else self.posted.new_zeros(self.num_inner, self.posted.shape[1])

    def _encode(self, rows: Tensor, step: int, hop: int) -> Tensor:
        codec = self.stages.encode
        if codec.lossless:
            return rows.contiguous()
        width, dtype = codec.form(rows.shape[1], rows.dtype)
        message = rows.new_empty(len(rows), width, dtype=dtype)
        codec.encode(rows, None, message, self._key(step, hop), None)
        return message

    def _hop(self, message: Tensor, rows: int, like: Tensor) -> Tensor:
        """Passes a message on to the right, and gives the one from the left."""
        rank, size = self.transport.rank, self.transport.size
        width, dtype = self.stages.encode.form(like.shape[1], like.dtype)
        nothing = message[:0]
        leaving, arriving = [nothing] * size, [nothing] * size
        leaving[(rank + 1) % size] = message
        arriving[(rank - 1) % size] = passing = torch.empty(rows, width, dtype=dtype)
        self.transport.exchange(leaving, arriving, self.where).wait()
        return passing
