"""The policy that chooses which halo nodes' features a worker caches (PSC-GCN sec. V)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.errors import InputError

POLICIES = ("none", "random", "degree", "inclusion")
_SALT = 0xCAC4E


@dataclass(frozen=True)
class CachePolicy:
    """A rule for caching at most ``rows`` halo rows (below 1: that share of them), in the order ``order``.

    none: no row; random: any; degree: those that most nodes of the whole graph read (PaGraph); inclusion: those that
    this worker's sampler is most likely to read.
    """

    order: str = "inclusion"
    rows: float = 0.3

    def __post_init__(self) -> None:
        if self.order not in POLICIES:
            raise InputError(f"unknown cache {self.order!r}: use one of {', '.join(POLICIES)}")
        if self.rows < 0:
            raise InputError(f"cache_rows must be at least 0, not {self.rows}")

    def choose(self, inclusion: Tensor, degree: Tensor, key: int) -> Tensor:
        """Return the halo nodes to cache, int64 and ascending, from their inclusion probabilities and degrees [h]."""
        count = len(degree)
        room = min(count, int(self.rows if self.rows >= 1 else self.rows * count))
        match self.order:
            case "none":
                return torch.empty(0, dtype=torch.int64, device=degree.device)
            case "random":
                return kernels.draw_rows(kernels.stream(key, _SALT), count, room, degree.device).long()
            case "degree":
                worth = degree.double()
            case _:
                worth = inclusion
        # Ties in the order of node numbers, so that any two runs choose the same.
        return torch.sort(torch.argsort(worth, descending=True, stable=True)[:room]).values
