"""One or two bits per row, for senders to say which rows come, and how, and for readers to say which they want."""

from __future__ import annotations

import torch
from torch import Tensor


def pack(flags: Tensor) -> Tensor:
    """Return bool [n] as uint8 [⌈n / 8⌉]."""
    padded = flags.new_zeros((len(flags) + 7) // 8 * 8, dtype=torch.uint8)
    padded[: len(flags)] = flags
    return (padded.view(-1, 8) << _places(flags)).sum(1, dtype=torch.uint8)


def unpack(packed: Tensor, count: int) -> Tensor:
    """Return the first ``count`` bits as bool [count]."""
    return ((packed[:, None] >> _places(packed)) & 1).flatten()[:count].bool()


def room(count: int, device: torch.device) -> Tensor:
    """Return memory for the bits of that many rows."""
    return torch.empty((count + 7) // 8, dtype=torch.uint8, device=device)


def pack_codes(codes: Tensor) -> Tensor:
    """Return numbers below 4, uint8 [n], as uint8 [2 ⌈n / 8⌉]: their low bits, then their high ones."""
    return torch.cat([pack((codes & 1).bool()), pack((codes >> 1).bool())])


def unpack_codes(packed: Tensor, count: int) -> Tensor:
    """Return the numbers that `pack_codes` wrote, uint8 [count]."""
    low, high = (unpack(half, count).to(torch.uint8) for half in packed.chunk(2)) if count else (packed, packed)
    return low + 2 * high


def numbers(flags: Tensor) -> Tensor:
    """Return the numbers of the rows that are set, int32."""
    return flags.nonzero().flatten().to(torch.int32)


def _places(like: Tensor) -> Tensor:
    return torch.arange(8, dtype=torch.uint8, device=like.device)
