"""A level of loss: the policy that is in force, with all that lives from step to step under it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from isthmus.comm import FORWARD, GATHER, ChannelId, Links, Transport
from isthmus.errors import InputError
from isthmus.kernels.linear import half_of
from isthmus.local.cached_features import CachedFeatures
from isthmus.local.channels import COVERED, NEEDED, Channels
from isthmus.local.covers import Covers
from isthmus.local.needed import Needed
from isthmus.local.policy import Policy
from isthmus.sample import Schedule
from isthmus.shard import DrawContext, Shard


class Level:
    """A policy's channels, drawn graphs, needed rows and covers. A guarded run has two: its recipe's, and exact."""

    def __init__(self, whole: Shard, transport: Transport, policy: Policy, seed: int, dtype: torch.dtype):
        self.whole, self.transport, self.policy, self.seed = whole, transport, policy, seed
        self.half = half_of(policy.precision, dtype, whole.device)
        self.channels = Channels(transport, policy, whole, seed)
        context = DrawContext(whole, transport, seed, dtype)
        self.schedule = Schedule(policy.sampler, context, policy.row_stages.delay)
        self.cached = None
        if policy.cache is not None:
            self.cached = CachedFeatures(policy.cache, self.channels, self.schedule, seed)
        self.needed = Needed(whole, self.schedule, policy)
        suits = policy.covers and transport.size > 1 and not whole.replicated
        late = any(stages.delay for stages in policy.every_stages)
        self.covers = Covers(whole, self.needed, transport, policy.cover_asked, late) if suits else None

    def declare(self, rows: Tensor, share: float) -> None:
        """Declare the rows whose results are read when a model trains (`Needed.declare`)."""
        self.channels.needed_links = self.needed.declare(rows, share)

    def reads(self, share: float) -> None:
        """Tell samplers which share of all workers' rows the loss reads."""
        self.schedule.context = replace(self.schedule.context, share_read=share)

    def restore(self, state: dict[str, Tensor]) -> None:
        """Put the state of the channels back. Late rows go on as they are under way: by covers, or by the halo."""
        uses = {name.split(".")[3] for name in state}
        if uses & set(COVERED.values()) and self.covers is None:
            raise InputError("late rows of this run are under way by covers: resume it with --cut cover")
        for use in COVERED:
            if self.covers is not None and {use, COVERED[use]} & uses:
                self.covers.go_on(use == NEEDED, COVERED[use] in uses)
        self.channels.restore(state, self._links_at)

    def _links_at(self, channel: ChannelId, use: str, step: int) -> Links:
        """Return the links of a channel and its use in the graph of a step; all workers ask in the same order."""
        if self.covers is not None and use in COVERED.values():
            return self.covers.links(use == COVERED[NEEDED], sums=(channel.pass_ == FORWARD) == (channel.leg == GATHER))
        return self.needed.links_at(step, use == NEEDED)

    def leave(self) -> None:
        """Give way to another level: wait for what is under way, and forget it; a return begins like a run."""
        self.channels.drain()
        self.schedule.drain()
        self.channels.forget()

    def drain(self) -> None:
        """Wait for every transfer and every draw that is under way."""
        self.channels.drain()
        self.schedule.drain()
