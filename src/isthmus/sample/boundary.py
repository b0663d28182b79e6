"""BNS-GCN: each step trains on all inner nodes and a random share of the halo nodes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Links, Transport
from isthmus.errors import InputError
from isthmus.sample.drawn import Drawn
from isthmus.sample.edges import Edges

_SALT = 0xB45  # keeps these draws apart from others of the same step


@dataclass(frozen=True)
class Boundary:
    """Of the m rows that a reader has from an owner, s are drawn without replacement and count m/s times.

    s is p·m rounded down, or up with the probability of its fraction, so that small boundaries are not lost for ever;
    ``size="as-published"`` always rounds down. Both ends of a link draw the same rows, and no ids travel.
    """

    rate: float = 0.1
    size: str = "unbiased"

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise InputError(f"rate is the share of rows kept: it must be between 0 and 1, not {self.rate}")
        if self.size not in ("unbiased", "as-published"):
            raise InputError(f"unknown sample_size {self.size!r}: use unbiased or as-published")

    def rows(self, seed: int, step: int, owner: int, reader: int, count: int) -> Tensor:
        """The drawn rows, int32 and ascending, of the ``count`` rows that `reader` has from `owner`."""
        key = kernels.stream(seed, step, _SALT, owner, reader)
        exact = self.rate * count
        size = int(exact)
        if self.size == "unbiased":
            size += int(kernels.stream(key, count) / 2**64 < exact - size)
        return kernels.draw_rows(key, count, size)

    def draw(self, whole: Edges, seed: int, step: int, transport: Transport) -> Edges:
        if self.rate == 1:
            return whole
        me, links = transport.rank, whole.links
        halo = [self.rows(seed, step, q, me, count) for q, count in enumerate(links.halo_counts)]
        sent = [self.rows(seed, step, me, q, len(rows)) for q, rows in enumerate(links.send_rows)]
        counts = [len(rows) for rows in halo]
        picked = torch.cat([rows.long() + first for rows, first in zip(halo, links.halo.ptr, strict=False)])
        scale = torch.cat(
            [
                torch.full((s,), m / max(s, 1), dtype=torch.float64)
                for s, m in zip(counts, links.halo_counts, strict=True)
            ]
        )
        send_rows = [rows[chosen.long()] for rows, chosen in zip(links.send_rows, sent, strict=True)]
        halo_out = kernels.select_rows(whole.halo_out, picked.to(torch.int32))
        drawn = Drawn(
            whole,
            Links(send_rows, counts, sent, halo),
            picked,
            kernels.transpose(halo_out)[0],
            scale,
            edge_attr=_attributes(whole, picked),
        )
        drawn.halo_out = halo_out
        return drawn


def _attributes(whole: Edges, picked: Tensor) -> tuple[Tensor, Tensor] | None:
    """Edge attributes in the order that turning the drawn halo edges twice gives: by target, then by halo node."""
    if whole.edge_attributes is None:
        return None
    inner, halo = whole.edge_attributes
    number = torch.full((whole.num_halo,), -1)
    number[picked] = torch.arange(len(picked))
    cols = number[whole.halo.indices.long()]
    kept = (cols >= 0).nonzero().flatten()
    order = torch.argsort(whole.halo.edge_rows[kept] * max(len(picked), 1) + cols[kept])
    return inner, halo[kept[order]]
