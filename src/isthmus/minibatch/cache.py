"""Rows of other workers that a worker keeps: chosen once by their worth, or by the steps that will read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.errors import InputError

CACHES = {
    "vip": "nodes that batches read with the highest probability (SALIENT++)",
    "degree": "nodes that most nodes read",
    "list": "nodes that the coming steps will read, which is known, since draws are keyed",
}
_NEVER = 2**31 - 1


@dataclass(frozen=True)
class CacheConfig:
    """The rows that a worker may keep: a number or, below 1, a share of its own rows."""

    order: str = "vip"
    rows: float = 0.0
    window: int = 8
    """The coming steps that `list` looks at."""

    def __post_init__(self) -> None:
        if self.order not in CACHES:
            raise InputError(f"unknown cache {self.order!r}: use one of {', '.join(CACHES)}")
        if self.rows < 0:
            raise InputError(f"cache_rows must be a number of rows or a share below 1, not {self.rows:g}")
        if self.window < 1:
            raise InputError(f"window must be at least 1 step, not {self.window}")

    def room(self, own: int) -> int:
        """Return how many rows a worker with ``own`` rows may keep."""
        return int(self.rows if self.rows >= 1 else self.rows * own)

    @property
    def looks_ahead(self) -> int:
        return self.window if self.order == "list" and self.rows else 0


class Change(NamedTuple):
    """The rows kept after a step: some of those kept before, and some of those that the step reads."""

    old: Tensor  # bool [c], by place: whether it was kept before
    kept: Tensor  # int64, the places that those had
    new: Tensor  # int64, the places of the others among what the step reads


class Cache:
    """Kept rows, by book id. `nodes` are those of the last step that was asked for, `rows` of the last that is here."""

    def __init__(self, nodes: Tensor, rows: Tensor):
        """``nodes``: int64 [c], ascending; ``rows`` [c, F]."""
        self.nodes, self.rows = nodes, rows

    @cached_property
    def _places(self) -> Tensor:
        """The places of all nodes up to the last that is kept, and of those after it, int32."""
        places = torch.full((int(self.nodes[-1]) + 2 if len(self.nodes) else 1,), -1, dtype=torch.int32)
        places[self.nodes] = torch.arange(len(self.nodes), dtype=torch.int32)
        return places

    def find(self, nodes: Tensor) -> Tensor:
        """Return the place of each node (int64, book ids) in `rows`, int64; -1: it is not here."""
        return self._places[nodes.clamp_max(len(self._places) - 1)].long()

    def learn(self, nodes: Tensor, coming: Sequence[Tensor]) -> Change | None:
        """Hear which nodes of other workers a step reads, and which nodes the coming steps will read.

        Returns what changes when their rows are here; here nothing: what is kept was chosen once.
        """
        return None

    def apply(self, change: Change, rows: Tensor) -> None:
        """Keep what was chosen; ``rows`` [m, F] are those of the nodes that `learn` has heard of. In order of steps."""
        kept = torch.empty(len(change.old), rows.shape[1], dtype=rows.dtype)
        kept[change.old] = self.rows[change.kept]
        kept[~change.old] = rows[change.new]
        self.rows = kept


class ListCache(Cache):
    """Rows kept by the known access list: of all that are here, those that are read again soonest (Belady).

    Time is the number of the step, so what is kept does not depend on when messages arrive. Rows that no step of the
    window reads stay by their worth.
    """

    def __init__(self, nodes: Tensor, rows: Tensor, worth: Tensor):
        """``worth``: float64 [N], of all nodes."""
        super().__init__(nodes, rows)
        self.room, self.worth = len(nodes), worth
        self._next_use = torch.full((len(worth),), _NEVER, dtype=torch.int32)

    def find(self, nodes: Tensor) -> Tensor:
        """Return the place of each node as `Cache` does, of nodes that change from step to step."""
        if not len(self.nodes):
            return torch.full_like(nodes, -1)
        at = torch.searchsorted(self.nodes, nodes).clamp_max(len(self.nodes) - 1)
        return torch.where(self.nodes[at] == nodes, at, -1)

    def learn(self, nodes: Tensor, coming: Sequence[Tensor]) -> Change | None:
        """Choose the best of what is kept and of the nodes that a step reads (int64 [m])."""
        if not coming:
            return None
        for step in reversed(range(len(coming))):
            self._next_use[coming[step]] = step
        new = self.find(nodes) < 0
        every = torch.cat([self.nodes, nodes[new]])
        by_worth = torch.argsort(self.worth[every], descending=True, stable=True)
        chosen = by_worth[torch.argsort(self._next_use[every[by_worth]], stable=True)][: self.room]
        chosen = chosen[torch.argsort(every[chosen])]
        old, before = chosen < len(self.nodes), len(self.nodes)
        self.nodes = every[chosen]
        for read in coming:
            self._next_use[read] = _NEVER
        return Change(old, chosen[old], new.nonzero().flatten()[chosen[~old] - before])


def most_worth(worth: Tensor, room: int) -> Tensor:
    """Return the ``room`` nodes that are worth most, int64, ascending; none that is worth nothing."""
    order = torch.argsort(worth, descending=True, stable=True)[:room]
    return order[worth[order] > 0].sort().values
