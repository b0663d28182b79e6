"""Codecs: rows on the wire as they are, as 16-bit floats, or as B-bit integers between a row's extremes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.errors import InputError
from isthmus.kernels import Memory


class Codec(ABC):
    """A way of writing rows as a message and reading them back; one message row per row."""

    as_is: ClassVar[bool] = False
    """Whether a message is the rows themselves, byte for byte, so that nothing need be encoded or decoded."""
    heeds_memory: ClassVar[bool] = False
    """Whether `encode` makes use of ``memory``: error feedback and differences need it."""

    @abstractmethod
    def form(self, width: int, dtype: torch.dtype) -> tuple[int, torch.dtype]:
        """Return the width and dtype of the message for rows of that width and dtype."""

    @abstractmethod
    def encode(self, x: Tensor, rows: Tensor | None, message: Tensor, key: int, memory: Memory | None) -> None:
        """Write rows ``x[rows]`` (int32; None: all of x) to the message, maybe none at all.

        ``key`` names the draws of stochastic rounding; ``memory`` is what feedback adds, or differences are taken from.
        """

    @abstractmethod
    def decode(self, message: Tensor, out: Tensor, positions: Tensor | None = None, add: bool = False) -> None:
        """Write (or add) a message to ``out[positions]`` (int32; None: all of out)."""


@dataclass(frozen=True)
class AsIs(Codec):
    """The rows themselves, in the dtype in which they are computed."""

    as_is = True

    def form(self, width: int, dtype: torch.dtype) -> tuple[int, torch.dtype]:
        return width, dtype

    def encode(self, x: Tensor, rows: Tensor | None, message: Tensor, key: int, memory: Memory | None) -> None:
        message.copy_(x) if rows is None else kernels.gather_rows(x, rows, message)

    def decode(self, message: Tensor, out: Tensor, positions: Tensor | None = None, add: bool = False) -> None:
        _write(message, out, positions, add)


@dataclass(frozen=True)
class Half(Codec):
    """16-bit floats: bf16 has the range of float32, fp16 eight times its precision but a range of 6e-8 to 65504."""

    name: str = "bf16"
    heeds_memory = True

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.name == "bf16" else torch.float16

    def form(self, width: int, dtype: torch.dtype) -> tuple[int, torch.dtype]:
        return width, self.dtype

    def encode(self, x: Tensor, rows: Tensor | None, message: Tensor, key: int, memory: Memory | None) -> None:
        values = x if rows is None else kernels.gather_rows(x, rows)
        if memory is None:
            message.copy_(values)
            return
        positions = slice(None) if memory.positions is None else memory.positions.long()
        base = memory.base[positions]
        values = values - base if memory.delta else values + base
        message.copy_(values)
        sent = message.to(base.dtype)
        memory.base[positions] = base + sent if memory.delta else values - sent

    def decode(self, message: Tensor, out: Tensor, positions: Tensor | None = None, add: bool = False) -> None:
        _write(message.to(out.dtype), out, positions, add)


@dataclass(frozen=True)
class Linear(Codec):
    r"""B-bit integers between the extremes of each row (CDFGNN eqs. 22–23, with 2^B − 1 steps).

    .. math:: q = round\Bigl(\frac{v - min}{max - min} (2^B - 1)\Bigr)

    Nearest rounding errs by at most half a step; stochastic rounding by at most one, and by nothing on average.
    """

    bits: int = 8
    stochastic: bool = False
    heeds_memory = True

    def form(self, width: int, dtype: torch.dtype) -> tuple[int, torch.dtype]:
        return kernels.packed_width(width, self.bits), torch.uint8

    def encode(self, x: Tensor, rows: Tensor | None, message: Tensor, key: int, memory: Memory | None) -> None:
        stream = key if self.stochastic else None
        kernels.pack_rows(x, self.bits, rows=rows, stream=stream, out=message, memory=memory)

    def decode(self, message: Tensor, out: Tensor, positions: Tensor | None = None, add: bool = False) -> None:
        kernels.unpack_rows(message, self.bits, out, rows=positions, accumulate=add)


def codec(bits: int | str, rounding: str = "nearest") -> Codec:
    """Return the codec of that many bits per value: 32 (as is), 16 or bf16, fp16, 8, 4, 2."""
    if rounding not in ("nearest", "stochastic"):
        raise InputError(f"unknown rounding {rounding!r}: use nearest or stochastic")
    if bits == 32:
        return AsIs()
    if bits in (16, "bf16", "fp16"):
        return Half("fp16" if bits == "fp16" else "bf16")
    if bits in (2, 4, 8):
        return Linear(int(bits), rounding == "stochastic")
    raise InputError(f"bits must be 32, 16, bf16, fp16, 8, 4 or 2, not {bits!r}")


def _write(values: Tensor, out: Tensor, positions: Tensor | None, add: bool) -> None:
    if positions is None:
        out.add_(values) if add else out.copy_(values)
    elif add:
        kernels.scatter_add_rows(out, positions, values.to(out.dtype))
    else:
        out[positions.long()] = values.to(out.dtype)
