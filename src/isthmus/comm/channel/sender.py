"""The sender's half of a channel: select, clip, encode; and what it remembers of the rows that its readers hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm.channel.buffers import Buffers
from isthmus.comm.channel.codec import Memory
from isthmus.comm.channel.select import Picks
from isthmus.comm.channel.stages import Add, Stages
from isthmus.comm.links import FORWARD, Links

NOTHING = torch.empty(0, dtype=torch.int32)


@dataclass
class Leaving:
    """The rows of one peer: ``x[index]``, at ``positions`` of the link's memory (None: all, in order)."""

    x: Tensor
    index: Tensor | None
    positions: Tensor | None

    def take(self, picks: Tensor | None) -> Leaving:
        """Only some of them."""
        if picks is None:
            return self
        chosen = picks.long()
        index = picks if self.index is None else self.index[chosen]
        return Leaving(self.x, index, picks if self.positions is None else self.positions[chosen])

    def __len__(self) -> int:
        return len(self.x if self.index is None else self.index)

    def rows(self) -> Tensor:
        return self.x if self.index is None else kernels.gather_rows(self.x, self.index)


class Sender:
    """Turns this step's rows into one message per peer."""

    def __init__(self, stages: Stages, direction: str, rank: int, whole: Links, buffers: Buffers):
        self.stages, self.direction, self.rank, self.whole, self.buffers = stages, direction, rank, whole, buffers
        self.delta = isinstance(stages.merge, Add)
        self.remembers = stages.feedback or self.delta or stages.select.compares
        # Per peer: `Memory.base`, or a copy of what it holds for `select` to compare with.
        self.memory: list[Tensor] = []

    def lay_out(self, rows: Tensor, links: Links) -> list[Leaving]:
        """Forward: of inner rows [n, F] those a peer reads. Backward: of halo gradients [h, F] those it owns."""
        if self.remembers and not self.memory:
            counts, wide = self.whole.leaving(self.direction).counts, kernels.sum_dtype(rows.dtype)
            self.memory = [torch.zeros(count, rows.shape[1], dtype=wide) for count in counts]
        ends = links.leaving(self.direction)
        positions: Sequence[Tensor | None] = ends.positions or [None] * len(ends.counts)
        if self.direction == FORWARD:
            blocks = [Leaving(rows, index, place) for index, place in zip(links.send_rows, positions, strict=True)]
            # Rows that are compared are collected for that, and leave from where they are then.
            return [Leaving(b.rows(), None, b.positions) for b in blocks] if self.stages.select.compares else blocks
        rows = self._clipped(rows)
        return [Leaving(part, None, place) for part, place in zip(ends.split(rows), positions, strict=True)]

    def select(self, blocks: list[Leaving], step: int, first: bool = False) -> Picks:
        """Which rows of each block leave; None is all of them. At first nobody holds anything, so all do."""
        select = self.stages.select
        if not select.compares:
            return [None if first or select.by_clock(self.rank, step) else NOTHING] * len(blocks)
        held = [m if b.positions is None else m[b.positions.long()] for m, b in zip(self.memory, blocks, strict=True)]
        return select.by_value([block.rows() for block in blocks], held)

    def encode(self, peer: int, block: Leaving, key: int) -> Tensor:
        """The message of a block; `key` names the draws of stochastic rounding."""
        codec = self.stages.encode
        memory = None
        if self.stages.feedback or self.delta:
            memory = Memory(self.memory[peer], block.positions, self.delta)
        if codec.lossless and block.index is None:
            message = block.x  # the rows lie as they are to be sent
        else:
            width, dtype = codec.form(block.x.shape[1], block.x.dtype)
            message = self.buffers.take((len(block), width), dtype)
            codec.encode(block.x, block.index, message, key, memory)
        if self.remembers and memory is None:
            codec.decode(message, self.memory[peer], block.positions)
        return message

    def _clipped(self, rows: Tensor) -> Tensor:
        clip, workers = self.stages.clip, len(self.whole.send_rows)
        if clip is None:
            return rows
        limit, norm = clip.threshold * workers**clip.power, float(rows.norm())
        return rows if norm <= limit else rows * (limit / norm)
