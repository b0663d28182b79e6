"""Links: the rows that two workers share, owned by one and mirrored by the other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import bits
from isthmus.comm.ledger import Where
from isthmus.comm.legs import SCATTER
from isthmus.comm.transport import Pending, Transport


@dataclass(frozen=True)
class Ends:
    """The rows of a transfer, peer by peer, at one end of it."""

    counts: list[int]  # rows per peer
    positions: list[Tensor] | None = None  # int32 per peer: positions among all rows that this link can carry

    @cached_property
    def ptr(self) -> list[int]:
        """The offsets of a block laid out by peer: rows ptr[q]:ptr[q+1] belong to worker q."""
        ends = [0]
        for count in self.counts:
            ends.append(ends[-1] + count)
        return ends

    def split(self, block: Tensor) -> list[Tensor]:
        """Return one piece per peer of a block laid out by peer."""
        return [block[first:last] for first, last in zip(self.ptr, self.ptr[1:], strict=False)]


@dataclass(frozen=True)
class Links:
    """The rows that one worker shares with each other worker q: ``send_rows[q]`` of mine, ``mirror_counts[q]`` of q's.

    Worker q mirrors my rows ``send_rows[q]`` (int32), in this order; ``mirror_counts[q]`` of my mirrors belong to q.
    The links of a drawn graph carry fewer rows than those of the whole graph, and say which (``…_positions``).
    """

    send_rows: list[Tensor]
    mirror_counts: list[int]
    send_positions: list[Tensor] | None = None
    mirror_positions: list[Tensor] | None = None

    @cached_property
    def boundary(self) -> Ends:
        """My rows that others mirror, once for each worker that does."""
        return Ends([len(rows) for rows in self.send_rows], self.send_positions)

    @cached_property
    def boundary_rows(self) -> Tensor:
        """My rows that any other worker mirrors, int64, each once, ascending."""
        return torch.cat(self.send_rows).unique().long()

    @cached_property
    def mirrors(self) -> Ends:
        """My mirrors, by owner."""
        return Ends(self.mirror_counts, self.mirror_positions)

    @property
    def device(self) -> torch.device:
        return self.send_rows[0].device

    def to(self, device: torch.device) -> Links:
        """Return the links with their rows on a device."""
        places = self.send_positions, self.mirror_positions
        moved = (None if at is None else [rows.to(device) for rows in at] for at in places)
        return Links([rows.to(device) for rows in self.send_rows], self.mirror_counts, *moved)

    @property
    def nothing(self) -> Tensor:
        """The numbers of no rows, int32 [0]."""
        return self.send_rows[0][:0]

    @property
    def num_mirrors(self) -> int:
        return self.mirrors.ptr[-1]

    def leaving(self, leg: str) -> Ends:
        """Return the rows that I send: boundary rows in a scatter, mirrors in a gather."""
        return self.boundary if leg == SCATTER else self.mirrors

    def arriving(self, leg: str) -> Ends:
        """Return the rows that I receive."""
        return self.mirrors if leg == SCATTER else self.boundary

    def pull(self, values: Tensor, transport: Transport, where: Where) -> Tensor:
        """Return the owners' values for my mirrors, [mirrors, …], given each worker's values for its own rows, [n, …].

        Every worker calls it at the same time, and waits.
        """
        column = values.reshape(len(values), -1).contiguous()
        out = column.new_empty(self.num_mirrors, column.shape[1])
        leaving = [kernels.gather_rows(column, rows) for rows in self.send_rows]
        transport.exchange(leaving, self.mirrors.split(out), where).wait()
        return out.view(-1, *values.shape[1:])

    def push(self, values: Tensor, transport: Transport, where: Where) -> Push:
        """Send values of my mirrors, [mirrors], to their owners; `Push.wait` returns what others send for my rows.

        Every worker calls it at the same time. Bools travel as one bit each.
        """
        flags = values.dtype == torch.bool
        leaving = [bits.pack(part) if flags else part.contiguous() for part in self.mirrors.split(values)]
        arriving = [
            bits.room(len(rows), self.device) if flags else values.new_empty(len(rows), *values.shape[1:])
            for rows in self.send_rows
        ]
        return Push(self, arriving, flags, transport.exchange(leaving, arriving, where))


@dataclass(frozen=True)
class Push:
    """Values of mirrors on their way to the owners."""

    links: Links
    arriving: list[Tensor]
    flags: bool
    pending: Pending

    def wait(self) -> list[Tensor]:
        """Return what each worker sent for my rows that it mirrors, [rows of that link]."""
        self.pending.wait()
        if not self.flags:
            return self.arriving
        return [bits.unpack(part, len(rows)) for part, rows in zip(self.arriving, self.links.send_rows, strict=True)]
