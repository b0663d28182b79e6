"""All channels of a worker: one per site and direction, made when first used."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from isthmus.comm import FORWARD, PROBE, Buffers, Channel, Links, Ring, Stages, Transport
from isthmus.comm.channel.state import restore, state_of
from isthmus.local.policy import Policy
from isthmus.shard import Shard


class Channels:
    """The channels that the policy asks for, and exact ones for what must not depend on it."""

    def __init__(self, transport: Transport, policy: Policy, whole: Shard, seed: int):
        self.transport, self.policy, self.whole, self.seed = transport, policy, whole, seed
        self.buffers = Buffers()
        self.channels: dict[tuple[int, str, str], Channel] = {}
        self.near = whole.links  # all that the links of a near site can carry
        self.begin(0, False)

    def begin(self, step: int, probe: bool) -> None:
        self.step, self.probing = step, probe
        self.errors: dict[tuple[int, str], tuple[float, float]] = {}  # squares of (held − fresh) and of fresh

    def channel(self, site: int, direction: str, exact: bool, near: bool = False) -> Channel:
        """``near``: of a site where only rows that are read after the pass are made (`Near`)."""
        if exact:
            return self._channel(site, direction, "exact", Stages())
        stages = self.policy.forward if direction == FORWARD else self.policy.backward
        return self._channel(site, direction, "near" if near else "policy", stages)

    def feature_channel(self, site: int) -> Channel:
        """For rows that never change: coded and delayed like others, but none are kept at either end."""
        asked = self.policy.forward
        return self._channel(site, FORWARD, "features", Stages(encode=asked.encode, delay=asked.delay, warm=asked.warm))

    def _channel(self, site: int, direction: str, way: str, stages: Stages) -> Channel:
        key = (site, direction, way)
        if key not in self.channels:
            whole = self.near if way == "near" else self.whole.links
            about = (self.transport, stages, whole, site, direction, self.seed, self.buffers)
            self.channels[key] = Ring(*about, self.whole.num_inner) if stages.ring else Channel(*about)
        return self.channels[key]

    def measure(self, channel: Channel, rows: Tensor, edges: Shard, held: Tensor | None) -> None:
        """Compares what is held with what an exact exchange of `rows` gives, if this is a step of probing."""
        if not self.probing or held is None or channel.reader.layout is not edges.links:
            return
        fresh_way = self.channel(channel.site, channel.direction, exact=True)
        fresh_way.post(self.step, rows, edges.links, PROBE)
        fresh = fresh_way.take(self.step)
        if fresh is not None:
            gap = (held.double() - fresh.double()).square().sum()
            self.errors[channel.site, channel.direction] = float(gap), float(fresh.double().square().sum())

    def state(self) -> dict[str, Tensor]:
        state: dict[str, Tensor] = {}
        for (site, direction, way), channel in self.channels.items():
            if way != "exact" and not channel.stages.stateless:
                state |= {f"{site}.{direction}.{way}.{name}": tensor for name, tensor in state_of(channel).items()}
        return state

    def restore(self, state: dict[str, Tensor], links_at: Callable[[int, bool], Links]) -> None:
        by_channel: dict[tuple[str, str, str], dict[str, Tensor]] = {}
        for name, tensor in state.items():
            site, direction, way, rest = name.split(".", 3)
            by_channel.setdefault((site, direction, way), {})[rest] = tensor
        for (site, direction, way), part in by_channel.items():
            near, features = way == "near", way == "features"
            channel = self.feature_channel(int(site)) if features else self.channel(int(site), direction, False, near)

            def links_of(step: int, near: bool = near) -> Links:
                return links_at(step, near)

            restore(channel, part, links_of)

    def drain(self) -> None:
        """Waits for every transfer that is under way."""
        for channel in self.channels.values():
            channel.drain()
