"""One bit per row: how a sender says which rows come, and a reader which ones it wants."""

from __future__ import annotations

import torch
from torch import Tensor

_PLACES = torch.arange(8, dtype=torch.uint8)


def pack(flags: Tensor) -> Tensor:
    """bool [n] → uint8 [⌈n / 8⌉]."""
    padded = torch.zeros((len(flags) + 7) // 8 * 8, dtype=torch.uint8)
    padded[: len(flags)] = flags
    return (padded.view(-1, 8) << _PLACES).sum(1, dtype=torch.uint8)


def unpack(bits: Tensor, count: int) -> Tensor:
    """The numbers of the set bits among the first ``count``, int32."""
    flags = (bits[:, None] >> _PLACES) & 1
    return flags.flatten()[:count].nonzero().flatten().to(torch.int32)


def room(count: int) -> Tensor:
    """Memory for the bits of that many rows."""
    return torch.empty((count + 7) // 8, dtype=torch.uint8)
