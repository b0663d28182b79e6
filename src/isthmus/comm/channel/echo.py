"""An echo: a channel to nobody, which tells a sender what its readers hold of some of its rows."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.comm.channel.channel import Channel
from isthmus.comm.channel.select import Picks
from isthmus.comm.channel.stages import Stages
from isthmus.comm.ledger import Ledger, Where
from isthmus.comm.legs import GATHER, ChannelId
from isthmus.comm.links import Links
from isthmus.comm.pending import Pending
from isthmus.kernels.buffers import Buffers


class Echo(Channel):
    """A channel whose messages come back at once: `take` returns rows as a reader of ``stages`` would hold them.

    Nothing crosses a link. It has one peer, which holds all ``rows``; ``rank`` is the worker that seems to send them.
    """

    def __init__(self, stages: Stages, site: int, pass_: str, rows: int, rank: int, seed: int, device: torch.device):
        links = Links([torch.arange(rows, dtype=torch.int32, device=device)], [rows])
        channel = ChannelId(site, pass_, GATHER)  # so that rows are posted as they are laid out
        super().__init__(_Back(), stages, links, channel, seed, Buffers(device))  # type: ignore[arg-type]
        self.links, self.sender.rank = links, rank

    def links_of(self, step: int) -> Links:
        """Return the links of a step's graph: always all rows."""
        return self.links

    def _hear(self, mine: Picks, links: Links, step: int, where: Where) -> tuple[Picks, list[Tensor]]:
        chosen = zip(self.sender.levels, mine, strict=False)
        return mine, [level[picks.long()] for level, picks in chosen if picks is not None]

    def _tell(self, codes: list[Tensor], links: Links, where: Where) -> list[Tensor]:
        return codes

    def _count_ages(self, step: int) -> None:
        """Count nothing: these rows are not read."""


class _Back:
    """In the place of a transport: what is sent arrives at once, at the sender."""

    rank, size = -1, 1  # no peer is this worker itself

    def __init__(self) -> None:
        self.ledger = Ledger()

    def exchange(
        self,
        leaving: list[Tensor],
        arriving: list[Tensor],
        where: Where,
        later: bool = False,
        rows: list[int] | None = None,
    ) -> Pending:
        for message, room in zip(leaving, arriving, strict=True):
            room.copy_(message)
        return _Done(self.ledger)


class _Done(Pending):
    def _wait(self) -> None:
        """Return at once."""
