"""Which rows cross between this worker and the others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True)
class Ends:
    """The rows of a transfer, peer by peer, at one end of it."""

    counts: list[int]  # rows per peer
    positions: list[Tensor] | None = None  # int32 per peer: where they stand among all that this link can carry

    @cached_property
    def ptr(self) -> list[int]:
        """Rows ptr[q]:ptr[q+1] of a block laid out by peer are those of worker q."""
        ends = [0]
        for count in self.counts:
            ends.append(ends[-1] + count)
        return ends

    def split(self, block: Tensor) -> list[Tensor]:
        """A block laid out by peer, as one piece per peer."""
        return [block[first:last] for first, last in zip(self.ptr, self.ptr[1:], strict=False)]


@dataclass(frozen=True)
class Links:
    """Worker q reads my inner rows ``send_rows[q]`` (int32), in this order; ``halo_counts[q]`` of my halo rows are q's.

    The links of a drawn graph carry fewer rows than those of the whole graph, and say which.
    """

    send_rows: list[Tensor]
    halo_counts: list[int]
    send_positions: list[Tensor] | None = None
    halo_positions: list[Tensor] | None = None

    @cached_property
    def boundary(self) -> Ends:
        """My boundary rows, once for each reader."""
        return Ends([len(rows) for rows in self.send_rows], self.send_positions)

    @cached_property
    def boundary_rows(self) -> Tensor:
        """The inner rows that anybody reads, int64, each once, ascending."""
        return torch.cat(self.send_rows).unique().long()

    @cached_property
    def halo(self) -> Ends:
        """The halo rows, by owner."""
        return Ends(self.halo_counts, self.halo_positions)

    def leaving(self, direction: str) -> Ends:
        """What I send: boundary rows forward, gradients of halo rows backward."""
        return self.boundary if direction == FORWARD else self.halo

    def arriving(self, direction: str) -> Ends:
        return self.halo if direction == FORWARD else self.boundary
