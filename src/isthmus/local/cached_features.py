"""Input features of halo nodes under a memory budget: cached, or fetched for the graph of each step."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.features import CachePolicy, FeatureCache
from isthmus.features.cache import Fetch
from isthmus.local.channels import Channels
from isthmus.sample import Schedule


class CachedFeatures:
    """Input rows that never change but are too many to keep: each step reads the rows of its graph.

    The cache is refreshed together with the sampler's probabilities.
    """

    def __init__(self, policy: CachePolicy, channels: Channels, schedule: Schedule, seed: int):
        self.channels, self.schedule = channels, schedule
        context = schedule.context
        self.cache = FeatureCache(policy, context.whole.links, context.transport, seed)
        self.fetches: dict[tuple[int, int], Fetch] = {}  # by (site, step of use)
        self.known = -1  # first step of the norms that the cache was chosen by

    def rows(self, x: Tensor, site: int, step: int) -> Tensor:
        """Return the features of the halo nodes of this step's graph, [k, F]; ask for those of a later step's graph."""
        self._refresh(x, step)
        channel = self.channels.feature_channel(site)
        for due in channel.dues(step):
            fetch = self.fetches[site, due] = self._split(x, due)
            channel.post(step, x, fetch.links, "features", due)
        key = site, step
        fetch = self.fetches.pop(key) if key in self.fetches else self._split(x, step)
        arrived = channel.take(step)
        fetch.block[fetch.missed] = 0 if arrived is None else arrived
        return fetch.block

    def _split(self, x: Tensor, step: int) -> Fetch:
        edges = self.schedule.at(step)
        return self.cache.begin(edges.links, edges.picked, x)

    def _refresh(self, x: Tensor, step: int) -> None:
        row_norms = self.schedule.latest
        since = 0 if row_norms is None else row_norms.since
        if since > self.known:
            whole, sampler = self.schedule.context.whole, self.schedule.sampler
            inclusion = torch.ones(whole.num_halo, dtype=torch.float64, device=whole.device)
            if sampler is not None:
                inclusion = sampler.inclusion(self.schedule.context, row_norms)
            self.cache.refresh(x, inclusion, whole.halo_degree, step)
            self.known = since

    def state(self) -> dict[str, Tensor]:
        state = {f"cache.{name}": tensor for name, tensor in self.cache.state().items()}
        state["known"] = torch.tensor([self.known])
        for (site, due), fetch in self.fetches.items():
            state[f"fetch.{site}.{due}.block"], state[f"fetch.{site}.{due}.missed"] = fetch.block, fetch.missed
        return state

    def restore(self, state: dict[str, Tensor]) -> None:
        cached = {name.removeprefix("cache."): t for name, t in state.items() if name.startswith("cache.")}
        self.cache.restore(cached)
        self.known = int(state["known"])
        for name in state:
            if name.startswith("fetch.") and name.endswith(".block"):
                site, due = (int(number) for number in name.split(".")[1:3])
                missed = state[f"fetch.{site}.{due}.missed"].clone()
                self.fetches[site, due] = Fetch(state[name].clone(), missed, self.schedule.at(due).links)
