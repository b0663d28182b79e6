"""CAGNET's transport: every worker's whole block of rows passes every worker, whoever reads it.

In a scatter each worker's block goes round the ring in n − 1 hops (broadcast). A gather is the transpose: for each
owner a sum goes round the ring, every worker adds its share, and it ends at the owner (reduce-scatter).
"""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm.channel.channel import Channel
from isthmus.comm.channel.stages import Stages
from isthmus.comm.ledger import Where
from isthmus.comm.legs import SCATTER, ChannelId
from isthmus.comm.links import Links
from isthmus.comm.transport import Transport
from isthmus.kernels.buffers import Buffers


class Ring(Channel):
    """A channel that sends whole blocks, at once and in full; coded rows are coded again at each hop of a sum."""

    def __init__(
        self,
        transport: Transport,
        stages: Stages,
        whole: Links,
        channel: ChannelId,
        seed: int,
        buffers: Buffers,
        num_inner: int,
    ):
        super().__init__(transport, stages, whole, channel, seed, buffers)
        self.whole, self.num_inner = whole, num_inner
        self.blocks: list[int] = []  # rows of each worker's block
        self.read: list[Tensor] = []  # per owner, int32: the rows of its block that are my halo rows

    def post(self, step: int, rows: Tensor, links: Links, kind: str, due: int | None = None) -> None:
        self.posted, self.where = rows, Where(self.id.site, self.id.label, step, kind)
        if not self.blocks:
            self._prepare()

    def take(self, step: int) -> Tensor:
        """Return, in a scatter, my mirrors' rows [h, F]; in a gather, the sum of all workers' rows of mine [n, F]."""
        taken = self._broadcast(step) if self.id.leg == SCATTER else self._reduce(step)
        self.transport.ledger.used(len(taken), 0.0, 0)
        return taken

    def add(self, taken: Tensor, out: Tensor) -> None:
        out.add_(taken)

    def _prepare(self) -> None:
        """Learn how many rows each worker has, and which of them are mirrored here."""
        where = self.where._replace(kind="ids")
        sizes = torch.zeros(self.transport.size, dtype=torch.int64)
        sizes[self.transport.rank] = self.num_inner
        self.blocks = self.transport.all_reduce(sizes, where).tolist()
        numbers = torch.arange(self.num_inner, dtype=torch.int32, device=self.whole.device)
        self.read = self.whole.mirrors.split(self.whole.pull(numbers, self.transport, where))

    def _broadcast(self, step: int) -> Tensor:
        """Pass blocks round the ring, and pick the halo rows from each as it passes."""
        rows = self.posted
        block = rows.new_empty(self.whole.mirrors.ptr[-1], rows.shape[1])
        pieces, passing = self.whole.mirrors.split(block), self._encode(rows, step, 0)
        for hop in range(1, self.transport.size):
            owner = (self.transport.rank - hop) % self.transport.size
            passing = self._hop(passing, self.blocks[owner], rows)
            self.stages.encode.decode(kernels.gather_rows(passing, self.read[owner]), pieces[owner])
        return block

    def _reduce(self, step: int) -> Tensor:
        """Pass a sum round the ring for each owner, and add this worker's share to each."""
        shares = self.whole.mirrors.split(self.posted)
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
        if codec.as_is:
            return rows.contiguous()
        width, dtype = codec.form(rows.shape[1], rows.dtype)
        message = rows.new_empty(len(rows), width, dtype=dtype)
        codec.encode(rows, None, message, self._key(step, hop), None)
        return message

    def _hop(self, message: Tensor, rows: int, like: Tensor) -> Tensor:
        """Send a message to the right-hand worker, and return the one from the left."""
        rank, size = self.transport.rank, self.transport.size
        width, dtype = self.stages.encode.form(like.shape[1], like.dtype)
        nothing = message[:0]
        leaving, arriving = [nothing] * size, [nothing] * size
        leaving[(rank + 1) % size] = message
        arriving[(rank - 1) % size] = passing = like.new_empty(rows, width, dtype=dtype)
        self.transport.exchange(leaving, arriving, self.where).wait()
        return passing
