"""The features of some halo nodes, kept; and the links of a drawn graph without them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Links, Transport, Where, flags
from isthmus.features.cache_policy import CachePolicy


@dataclass
class Fetch:
    """The features of a drawn graph's halo nodes: some were here, the others are under way."""

    block: Tensor  # [k, F]; cached rows are in their places
    missed: Tensor  # int64: places of the others in the block
    links: Links  # that bring those


class FeatureCache:
    """A map with one int32 per halo node, and the rows that it points to.

    Owners know what their readers keep, because they hear of every change: so they leave those rows out.
    """

    def __init__(self, policy: CachePolicy, links: Links, transport: Transport, seed: int):
        self.policy, self.links, self.transport, self.seed = policy, links, transport, seed
        self.where_of = torch.full((links.halo.ptr[-1],), -1, dtype=torch.int32)  # the cache map
        self.rows = torch.empty(0)  # the cache buffer, [cached, F]
        self.kept_by = [torch.zeros(len(rows), dtype=torch.bool) for rows in links.send_rows]  # by each reader

    def refresh(self, x: Tensor, inclusion: Tensor, degree: Tensor, step: int) -> None:
        """Chooses anew what stays, and fetches what was not yet here. Every worker calls it at the same time."""
        chosen = self.policy.choose(inclusion, degree, kernels.stream(self.seed, self.transport.rank))
        keep = torch.zeros(len(self.where_of), dtype=torch.bool)
        keep[chosen] = True
        new = keep & (self.where_of < 0)
        wanted = self._tell(new, step)
        self.kept_by = self._heard(self._tell(keep, step))
        arrived = x.new_empty(int(new.sum()), x.shape[1])
        self._fetch(x, self._heard(wanted), new, arrived, step)
        rows = x.new_empty(len(chosen), x.shape[1])
        here = self.where_of[chosen]
        old = here >= 0
        if old.any():
            rows[old] = self.rows[here[old].long()]
        rows[~old] = arrived
        self.rows = rows
        self.where_of.fill_(-1)
        self.where_of[chosen] = torch.arange(len(chosen), dtype=torch.int32)

    def begin(self, drawn: Links, picked: Tensor | None, like: Tensor) -> Fetch:
        """Splits a drawn graph's halo rows (``picked`` int64; None: all) into those here and those to be fetched."""
        slot = self.where_of if picked is None else self.where_of[picked]
        block = like.new_empty(len(slot), like.shape[1])
        hit = slot >= 0
        if hit.any():
            block[hit] = self.rows[slot[hit].long()]
        self.transport.ledger.cache_hits += int(hit.sum())
        self.transport.ledger.cache_misses += int((~hit).sum())
        return Fetch(block, (~hit).nonzero().flatten(), self._without_kept(drawn, hit))

    def _without_kept(self, drawn: Links, hit: Tensor) -> Links:
        """Of a drawn graph's links what readers do not keep."""
        send_rows, send_positions = [], []
        for q, rows in enumerate(drawn.send_rows):
            kept = self.kept_by[q]
            positions = None if drawn.send_positions is None else drawn.send_positions[q]
            leaves = ~(kept if positions is None else kept[positions.long()])
            send_rows.append(rows[leaves])
            send_positions.append(
                torch.arange(len(rows), dtype=torch.int32)[leaves] if positions is None else positions[leaves]
            )
        missed = drawn.halo.split(~hit)
        halo_positions = [
            rows.nonzero().flatten().to(torch.int32) if drawn.halo_positions is None else drawn.halo_positions[q][rows]
            for q, rows in enumerate(missed)
        ]
        return Links(send_rows, [int(rows.sum()) for rows in missed], send_positions, halo_positions)

    def _tell(self, rows: Tensor, step: int) -> list[Tensor]:
        """Says something (one bit) of each halo row to its owner; what the readers of my rows say, as bits."""
        heard = [flags.room(len(mine)) for mine in self.links.send_rows]
        where = Where("cache", "backward", step, "ids")
        said = [flags.pack(part) for part in self.links.halo.split(rows)]
        self.transport.exchange(said, heard, where).wait()
        return heard

    def _heard(self, bits: list[Tensor]) -> list[Tensor]:
        """The same as one bool per row."""
        said = []
        for part, rows in zip(bits, self.links.send_rows, strict=True):
            flagged = torch.zeros(len(rows), dtype=torch.bool)
            flagged[flags.unpack(part, len(rows)).long()] = True
            said.append(flagged)
        return said

    def _fetch(self, x: Tensor, wanted: list[Tensor], new: Tensor, out: Tensor, step: int) -> None:
        leaving = [kernels.gather_rows(x, rows[w]) for rows, w in zip(self.links.send_rows, wanted, strict=True)]
        counts = [int(part.sum()) for part in self.links.halo.split(new)]
        where = Where("cache", "forward", step, "features")
        self.transport.exchange(leaving, list(torch.split(out, counts)), where).wait()

    def state(self) -> dict[str, Tensor]:
        kept = {f"kept_by.{q}": kept for q, kept in enumerate(self.kept_by)}
        return {"where_of": self.where_of, "rows": self.rows, **kept}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.where_of, self.rows = state["where_of"].clone(), state["rows"].clone()
        self.kept_by = [state[f"kept_by.{q}"].clone() for q in range(len(self.kept_by))]
