"""Codecs: rows on the wire as they are, as 16-bit floats, or as B-bit integers between a row's extremes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
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

    varies: ClassVar[bool] = False
    """Whether it chooses at every step how each row is written; the choice, and its state, are a `Coding`'s."""
    predicts: ClassVar[bool] = False
    """Whether rows that are read back depend on messages of earlier steps."""

    def start(self) -> Coding | None:
        """Return the choice of one channel, if rows are written in different ways."""
        return None

    def room(self, rows: int, width: int, dtype: torch.dtype) -> tuple[tuple[int, ...], torch.dtype]:
        """Return the shape and dtype of the message for so many rows of that width and dtype."""
        across, of = self.form(width, dtype)
        return (rows, across), of

    def filled(self, rows: int) -> int:
        """Return how many of so many rows a message has values of."""
        return rows

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


class Coding:
    """The way in which each row of a channel is written, chosen at its sender and told to its readers.

    It belongs to both ends of one channel. ``age`` counts steps since the channel's first message.
    """

    weighs: ClassVar[bool] = False
    """Whether rows may count differently: readers then say once how much (`weights`)."""

    def __init__(self) -> None:
        self.weights: list[Tensor] | None = None  # per peer, float64 [rows]

    def choose(self, age: int, rows: list[Tensor]) -> list[Tensor] | None:
        """Return the code of every row for each peer, uint8 below 4, to be told to readers; None: they know it."""
        raise NotImplementedError

    def codecs(self, age: int, mine: list[Tensor] | None, theirs: list[Tensor] | None) -> tuple[Each, Each]:
        """Return the codec of the message to each peer, and of that from each, given the codes that were told."""
        raise NotImplementedError

    def state(self) -> dict[str, Tensor]:
        """Return the state that outlives a step, by name, for a checkpoint."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Put a state back."""


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


class Varying(Codec):
    """A codec whose messages have no one form for all rows: the rule of a recipe, or what its coding makes of it."""

    varies = True

    def form(self, width: int, dtype: torch.dtype) -> tuple[int, torch.dtype]:
        raise AssertionError("rows of such messages differ: ask for the room of all")

    def encode(self, x: Tensor, rows: Tensor | None, message: Tensor, key: int, memory: Memory | None) -> None:
        raise AssertionError("messages are written by the codecs of its coding")

    def decode(self, message: Tensor, out: Tensor, positions: Tensor | None = None, add: bool = False) -> None:
        raise AssertionError("messages are read by the codecs of its coding")


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


Each = Sequence[Codec]  # one per peer


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
