"""All channels of a worker: one per (site, pass, leg), made when first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from isthmus.comm import (
    FORWARD,
    PROBE,
    SCATTER,
    Buffers,
    Channel,
    ChannelId,
    Links,
    Relayed,
    RelaysOf,
    Ring,
    Stages,
    Transport,
)
from isthmus.comm.channel.select import Changed, Threshold
from isthmus.comm.channel.state import restore, state_of
from isthmus.local.policy import Policy
from isthmus.shard import Shard

EXACT, POLICY, NEEDED, FEATURES = "exact", "policy", "needed", "features"
"""The uses of a site: an exact exchange, the policy's, the policy's for needed rows alone, that of fixed features."""
COVERED = {POLICY: "covered", NEEDED: "needed-covered"}
"""The policy's uses under a cover cut."""

LinksAt = Callable[[ChannelId, str, int], Links]


class Channels:
    """The channels that the policy asks for, and exact ones for what must not depend on it."""

    def __init__(self, transport: Transport, policy: Policy, whole: Shard, seed: int):
        self.transport, self.policy, self.whole, self.seed = transport, policy, whole, seed
        self.buffers = Buffers(whole.device)
        self.made: dict[tuple[ChannelId, str], Channel] = {}
        relays = policy.relays and len(set(transport.hosts)) > 1
        self.relays_of = RelaysOf(transport) if relays else None
        self.needed_links = whole.links  # all rows that can cross at a site which computes only needed rows
        self.told: dict[str, float] = {}  # the figures of the last step, summed over the workers
        self.begin(0, False)

    def begin(self, step: int, probe: bool) -> None:
        """Begin a pass; with ``probe``, measure the errors of its exchanges."""
        self.step, self.probing = step, probe
        self.errors: dict[tuple[int, str], tuple[float, float]] = {}  # squares of (held − fresh) and of fresh

    def channel(
        self, channel: ChannelId, exact: bool, needed: bool = False, relayed: bool = True, covered: bool = False
    ) -> Channel:
        """Return a channel; ``needed``: of a site that computes only the rows that the loss needs.

        ``relayed``: a row may cross between hosts once, and rows of one host may be added there. ``covered``: it
        carries the rows and sums of a cover.
        """
        if exact:
            return self._channel(channel, EXACT, Stages(), relayed)
        use = NEEDED if needed else POLICY
        return self._channel(channel, COVERED[use] if covered else use, self._stages(channel), relayed)

    def _stages(self, channel: ChannelId) -> Stages:
        return self.policy.stages(channel.pass_, channel.leg)

    def feature_channel(self, site: int) -> Channel:
        """Return the channel of rows that never change: coded and delayed like others, but kept at neither end."""
        asked = self.policy.stages(FORWARD, SCATTER)
        stages = Stages(encode=asked.encode, delay=asked.delay, warm=asked.warm)
        return self._channel(ChannelId(site, FORWARD, SCATTER), FEATURES, stages)

    def _channel(self, channel: ChannelId, use: str, stages: Stages, relayed: bool = False) -> Channel:
        key = (channel, use)
        if key not in self.made:
            about = (self.transport, stages, self._links(channel, use), channel, self.seed, self.buffers)
            if stages.ring:
                self.made[key] = Ring(*about, self.whole.num_inner)
            elif relayed and self.relays_of is not None:
                self.made[key] = Relayed(*about, self.relays_of)
            else:
                self.made[key] = Channel(*about)
        return self.made[key]

    def _links(self, channel: ChannelId, use: str) -> Links:
        """Return the links of all rows that can cross by a channel."""
        if use == NEEDED:
            return self.needed_links
        return self.whole.links if self.policy.caches else self.whole.leg_links(channel.pass_, channel.leg)

    def measure(self, channel: Channel, rows: Tensor, shard: Shard, held: Tensor | None) -> None:
        """Compare what is held with what an exact exchange of `rows` gives, if this is a step of probing."""
        if not self.probing or held is None or not channel.reads(shard.links):
            return
        fresh_way = self.channel(channel.id, exact=True)
        if fresh_way is channel:  # its rows are fresh, and another post would give their memory away
            return
        fresh_way.post(self.step, rows, shard.links, PROBE)
        fresh = fresh_way.take(self.step)
        if fresh is not None:
            gap = (held.double() - fresh.double()).square().sum()
            self.errors[channel.id.site, channel.id.label] = float(gap), float(fresh.double().square().sum())

    def observe(self, told: Mapping[str, float]) -> None:
        """Tell every selector how training goes (`Select.observe`)."""
        self.told = dict(told)
        for channel in self.made.values():
            channel.sender.select.observe(told)
            channel.own.select.observe(told)

    def shares(self) -> dict[str, float]:
        """Return the rows that left at this step, and those that could have, by channel, where senders choose."""
        found: dict[str, float] = {}
        for (channel_id, use), channel in self.made.items():
            if use != EXACT and channel.stages.select.compares:
                found[f"sent {channel_id.site} {channel_id.pass_} {channel_id.leg}"] = float(channel.share[0])
                found[f"all {channel_id.site} {channel_id.pass_} {channel_id.leg}"] = float(channel.share[1])
        return found

    def cache_line(self) -> dict[str, Any] | None:
        """Return the bound of this step, and the share of rows that left, by site, pass and leg; None without any."""
        sent = {name.removeprefix("sent "): n for name, n in self.told.items() if name.startswith("sent ")}
        if not sent:
            return None
        selects = [channel.sender.select for (_, use), channel in self.made.items() if use != EXACT]
        bounds = [select.bound for select in selects if isinstance(select, Changed | Threshold)]
        shares = {name: n / could for name, n in sent.items() if (could := self.told[f"all {name}"])}
        return {"epsilon": bounds[0] if bounds else None, "sent": shares}

    def state(self) -> dict[str, Tensor]:
        """Return what all channels carry from step to step, by name."""
        state: dict[str, Tensor] = {}
        for (channel_id, use), channel in self.made.items():
            if use != EXACT and not channel.stages.stateless:
                name = ".".join(map(str, (*channel_id, use)))
                state |= {f"{name}.{piece}": tensor for piece, tensor in state_of(channel).items()}
        return state

    def restore(self, state: dict[str, Tensor], links_at: LinksAt) -> None:
        """Put a state back; ``links_at`` gives the links of a channel and its use in a step's graph."""
        by_channel: dict[tuple[ChannelId, str], dict[str, Tensor]] = {}
        for name, tensor in state.items():
            site, pass_, leg, use, piece = name.split(".", 4)
            by_channel.setdefault((ChannelId(int(site), pass_, leg), use), {})[piece] = tensor
        for (channel_id, use), part in by_channel.items():
            if use == FEATURES:
                channel = self.feature_channel(channel_id.site)
            else:
                channel = self._channel(channel_id, use, self._stages(channel_id), relayed=True)

            def links_of(step: int, channel: Channel = channel, use: str = use) -> Links:
                fixed = self.whole.replicated
                return channel.carried(self._links(channel.id, use) if fixed else links_at(channel.id, use, step))

            restore(channel, part, links_of)

    def forget(self) -> None:
        """Drop what the policy's channels hold, so that they begin anew; exact ones hold nothing."""
        self.made = {key: channel for key, channel in self.made.items() if key[1] == EXACT}

    def drain(self) -> None:
        """Wait for every transfer that is under way."""
        for channel in self.made.values():
            channel.drain()
