"""The sender's half of a channel: selects, clips and encodes rows, and remembers what its readers hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm.channel.codec import Codec
from isthmus.comm.channel.select import SURE, Picks, Select
from isthmus.comm.channel.stages import Stages
from isthmus.comm.legs import SCATTER
from isthmus.comm.links import Links
from isthmus.kernels import Memory
from isthmus.kernels.buffers import Buffers


@dataclass
class Leaving:
    """The rows for one peer: ``x[index]``, at ``positions`` of the link's memory (None: all, in order)."""

    x: Tensor
    index: Tensor | None
    positions: Tensor | None

    def take(self, picks: Tensor | None) -> Leaving:
        """Return only the picked rows."""
        if picks is None:
            return self
        chosen = picks.long()
        index = picks if self.index is None else self.index[chosen]
        return Leaving(self.x, index, picks if self.positions is None else self.positions[chosen])

    def __len__(self) -> int:
        return len(self.x if self.index is None else self.index)

    def rows(self) -> Tensor:
        """Return the rows themselves, gathered if necessary."""
        return self.x if self.index is None else kernels.gather_rows(self.x, self.index)


class Sender:
    """The sending end: it turns this step's rows into one message per peer."""

    def __init__(self, stages: Stages, leg: str, rank: int, whole: Links, buffers: Buffers):
        self.stages, self.leg, self.rank, self.whole, self.buffers = stages, leg, rank, whole, buffers
        self.select = stages.select.start()
        self.delta = stages.merge.is_difference
        self.remembers = stages.feedback or self.delta or self.select.compares
        # Per peer: `Memory.base`, or a copy of what it holds for `select` to compare with.
        self.memory: list[Tensor] = []
        self.levels: list[Tensor] = []  # per peer: the chance of each row to leave at this step, where rows are drawn

    def lay_out(self, rows: Tensor, links: Links) -> list[Leaving]:
        """Return each peer's block of rows.

        In a scatter: those of my rows [n, F] that it mirrors; in a gather: those of my mirrors' rows [mirrors, F] that
        it owns.
        """
        if self.remembers and not self.memory:
            counts, wide = self.whole.leaving(self.leg).counts, kernels.sum_dtype(rows.dtype)
            self.memory = [rows.new_zeros(count, rows.shape[1], dtype=wide) for count in counts]
        ends = links.leaving(self.leg)
        positions: Sequence[Tensor | None] = ends.positions or [None] * len(ends.counts)
        if self.leg == SCATTER:
            blocks = [Leaving(rows, index, at) for index, at in zip(links.send_rows, positions, strict=True)]
        else:
            blocks = [Leaving(part, None, at) for part, at in zip(ends.split(rows), positions, strict=True)]
        return self._clipped(blocks) if self.stages.clip else blocks

    def choose(
        self, blocks: list[Leaving], step: int, first: bool = False, keys: Sequence[int] = ()
    ) -> tuple[list[Leaving], Picks]:
        """Return the blocks, and the rows of each that leave; None: all.

        ``first``: nobody holds any, so a clock is not asked, and values are compared with zeros. ``keys``: per peer,
        they name this step's draws.
        """
        if not self.select.compares:
            picks = None if first or self.select.by_clock(self.rank, step) else self.whole.nothing
            return blocks, [picks] * len(blocks)
        # Rows have to be gathered to be compared, so they are sent from that copy.
        blocks = [Leaving(block.rows(), None, block.positions) for block in blocks]
        held = [m if b.positions is None else m[b.positions.long()] for m, b in zip(self.memory, blocks, strict=True)]
        rows, everything = [block.x for block in blocks], self.select.everything(step)
        if not self.stages.select.chance:
            return blocks, [None] * len(blocks) if everything else self.select.by_value(rows, held)
        certain = first or everything
        self.levels = Select().levels(rows, held) if certain else self.select.levels(rows, held)
        return blocks, [_drawn(levels, key) for levels, key in zip(self.levels, keys, strict=True)]

    def encode(self, peer: int, block: Leaving, key: int, codec: Codec) -> Tensor:
        """Return the message of a block; ``key`` names the draws of stochastic rounding."""
        memory = None
        if self.stages.feedback or self.delta:
            memory = Memory(self.memory[peer], block.positions, self.delta)
        if codec.as_is and block.index is None:
            message = block.x  # the rows are already laid out as they are to be sent
        else:
            message = self.buffers.take(*codec.room(len(block), block.x.shape[1], block.x.dtype))
            codec.encode(block.x, block.index, message, key, memory)
            if memory is not None and not self.stages.merge.follows:
                held = self.memory[peer]
                held[slice(None) if block.positions is None else block.positions.long()] = block.rows().to(held.dtype)
        if self.remembers and memory is None:
            codec.decode(message, self.memory[peer], block.positions)
        return message

    def held_by(self, peer: int) -> Tensor:
        """Return the rows that a peer holds, as it has decoded them; only where they are remembered."""
        return self.memory[peer]

    def _clipped(self, blocks: list[Leaving]) -> list[Leaving]:
        assert self.stages.clip is not None, "only clipped stages come here"
        rows = [block.rows() for block in blocks]
        limit = self.stages.clip.limit(len(blocks))
        norm = sum(float(torch.linalg.vector_norm(part)) ** 2 for part in rows) ** 0.5
        if norm <= limit:
            return blocks
        return [Leaving(part * (limit / norm), None, block.positions) for part, block in zip(rows, blocks, strict=True)]


def _drawn(levels: Tensor, key: int) -> Tensor:
    """Return the numbers of the rows that leave, int32, each with the chance of its level."""
    draws = kernels.random_keys(key, torch.arange(len(levels), device=levels.device)) % SURE
    return (draws < levels).nonzero().flatten().to(torch.int32)
