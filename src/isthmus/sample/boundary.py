"""BNS-GCN: each step trains on all inner nodes and a random share of the halo nodes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.errors import InputError
from isthmus.sample.row_norms import RowNorms
from isthmus.shard.draw_context import DrawContext
from isthmus.shard.shard import Shard

_SALT = 0xB45  # keeps these draws apart from others of the same step


@dataclass(frozen=True)
class Boundary:
    """A sampler of boundary rows: s of the m rows that a reader has from an owner, each counted m/s times (`weight`).

    Rows are drawn without replacement. s is p·m rounded down, or up with the probability of its fraction, so that small
    boundaries are not left out for ever; ``size="as-published"`` always rounds down. Both ends of a link draw the same
    rows, so no ids travel.
    """

    rate: float = 0.1
    size: str = "unbiased"
    refresh: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise InputError(f"rate is the share of rows kept: it must be between 0 and 1, not {self.rate}")
        if self.size not in ("unbiased", "as-published"):
            raise InputError(f"unknown sample_size {self.size!r}: use unbiased or as-published")

    def rows(
        self, seed: int, step: int, owner: int, reader: int, count: int, device: torch.device | None = None
    ) -> Tensor:
        """Return the drawn ones, int32 and ascending, of the ``count`` rows that `reader` has from `owner`."""
        key = kernels.stream(seed, step, _SALT, owner, reader)
        exact = self.rate * count
        size = int(exact)
        if self.size == "unbiased":
            size += int(kernels.stream(key, count) / 2**64 < exact - size)
        return kernels.draw_rows(key, count, size, device)

    def weight(self, count: int, size: int) -> float:
        """Return the factor of each of ``size`` rows drawn from ``count``: the inverse of the share drawn.

        A link that draws less than one row on average mostly draws none, so there it is the inverse of the probability.
        """
        if not size:
            return 0.0
        return count / size if self.rate * count >= 1 else 1 / self.rate

    def draw(self, context: DrawContext, step: int, row_norms: RowNorms | None = None) -> Shard:
        if self.rate == 1:
            return context.whole
        me, links, seed, where = context.transport.rank, context.whole.links, context.seed, context.whole.device
        halo = [self.rows(seed, step, q, me, count, where) for q, count in enumerate(links.mirror_counts)]
        sent = [self.rows(seed, step, me, q, len(rows), where) for q, rows in enumerate(links.send_rows)]
        scale = [
            torch.full((len(rows),), self.weight(count, len(rows)), dtype=torch.float64, device=where)
            for rows, count in zip(halo, links.mirror_counts, strict=True)
        ]
        return context.with_rows(halo, sent, torch.cat(scale))

    def inclusion(self, context: DrawContext, row_norms: RowNorms | None = None) -> Tensor:
        whole = context.whole
        return torch.full((whole.num_halo,), self.rate, dtype=torch.float64, device=whole.device)
