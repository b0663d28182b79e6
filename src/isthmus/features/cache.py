"""Cache the input features of some halo nodes, and leave those rows out of a drawn graph's links."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import FORWARD, Links, Transport, Where, bits
from isthmus.features.cache_policy import CachePolicy


@dataclass
class Fetch:
    """The features of a drawn graph's halo nodes: cached rows are in place, the others are still to come."""

    block: Tensor  # [k, F]; cached rows are filled in
    missed: Tensor  # int64: positions of the other rows in the block
    links: Links  # the links that bring the other rows


class FeatureCache:
    """The cached feature rows of halo nodes: a map with one int32 per halo node, and a buffer of rows.

    Owners hear of every change, so they know what their readers have cached and leave those rows out.
    """

    def __init__(self, policy: CachePolicy, links: Links, transport: Transport, seed: int):
        self.policy, self.links, self.transport, self.seed = policy, links, transport, seed
        where = links.device
        self.where_of = torch.full((links.num_mirrors,), -1, dtype=torch.int32, device=where)  # the cache map
        self.rows = torch.empty(0, device=where)  # the cache buffer, [cached, F]
        # One mask per reader.
        self.kept_by = [torch.zeros(len(rows), dtype=torch.bool, device=where) for rows in links.send_rows]

    def refresh(self, x: Tensor, inclusion: Tensor, degree: Tensor, step: int) -> None:
        """Choose anew which rows to cache, and fetch those that are missing. Every worker calls it at the same time."""
        chosen = self.policy.choose(inclusion, degree, kernels.stream(self.seed, self.transport.rank))
        keep = torch.zeros(len(self.where_of), dtype=torch.bool, device=x.device)
        keep[chosen] = True
        new = keep & (self.where_of < 0)
        said = Where("cache", "setup", step, "ids")
        wanted = self.links.push(new, self.transport, said).wait()
        self.kept_by = self.links.push(keep, self.transport, said).wait()
        fetched = Links(
            [rows[w] for rows, w in zip(self.links.send_rows, wanted, strict=True)],
            [int(part.sum()) for part in self.links.mirrors.split(new)],
        )
        arrived = fetched.pull(x, self.transport, Where("cache", FORWARD, step, "features"))
        rows = x.new_empty(len(chosen), x.shape[1])
        here = self.where_of[chosen]
        old = here >= 0
        if old.any():
            rows[old] = self.rows[here[old].long()]
        rows[~old] = arrived
        self.rows = rows
        self.where_of.fill_(-1)
        self.where_of[chosen] = torch.arange(len(chosen), dtype=torch.int32, device=x.device)

    def begin(self, drawn: Links, picked: Tensor | None, like: Tensor) -> Fetch:
        """Split a drawn graph's halo rows (``picked`` int64; None: all) into cached rows and rows to fetch."""
        slot = self.where_of if picked is None else self.where_of[picked]
        block = like.new_empty(len(slot), like.shape[1])
        hit = slot >= 0
        if hit.any():
            block[hit] = self.rows[slot[hit].long()]
        self.transport.ledger.cache_hits += int(hit.sum())
        self.transport.ledger.cache_misses += int((~hit).sum())
        return Fetch(block, (~hit).nonzero().flatten(), self._without_kept(drawn, hit))

    def _without_kept(self, drawn: Links, hit: Tensor) -> Links:
        """Return a drawn graph's links without the rows that readers have cached."""
        send_rows, send_positions = [], []
        for q, rows in enumerate(drawn.send_rows):
            kept = self.kept_by[q]
            positions = None if drawn.send_positions is None else drawn.send_positions[q]
            leaves = ~(kept if positions is None else kept[positions.long()])
            send_rows.append(rows[leaves])
            send_positions.append(bits.numbers(leaves) if positions is None else positions[leaves])
        missed = drawn.mirrors.split(~hit)
        drawn_at = drawn.mirror_positions
        mirror_positions = [bits.numbers(m) if drawn_at is None else drawn_at[q][m] for q, m in enumerate(missed)]
        return Links(send_rows, [int(rows.sum()) for rows in missed], send_positions, mirror_positions)

    def state(self) -> dict[str, Tensor]:
        kept = {f"kept_by.{q}": kept for q, kept in enumerate(self.kept_by)}
        return {"where_of": self.where_of, "rows": self.rows, **kept}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.where_of, self.rows = state["where_of"].clone(), state["rows"].clone()
        self.kept_by = [state[f"kept_by.{q}"].clone() for q in range(len(self.kept_by))]
