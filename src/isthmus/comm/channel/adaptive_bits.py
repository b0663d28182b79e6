"""Bits by row: rows whose errors would do more harm are written with more bits, under a budget of bits for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm.channel.codec import Coding, Each, Varying
from isthmus.errors import InputError
from isthmus.kernels import Memory

BITS = (2, 4, 8)
_COST = tuple((2**bits - 1) ** -2 for bits in BITS)  # variance of a rounded value, relative to the range of its row


@dataclass(frozen=True)
class AdaptiveBits(Varying):
    r"""AdaQP: 2, 4 or 8 bits per row, so that the variance that rounding adds is smallest.

    .. math:: \min \sum_k \frac{β_k}{(2^{b_k} - 1)^2}, \quad \sum_k b_k \le budget \cdot rows, \qquad
              β_k = \sum_{i} P_{ik}^2 \sum_{t} (max_{kt} - min_{kt})^2

    over the rows k of a worker's exchange, with i their readers and t the steps since the last choice. All rows begin
    with 2 bits; those that gain most per bit get more. Gains fall with every bit, so that is the optimum, up to the
    bits that are left at the end.
    """

    budget: float = 4.0
    every: int = 50
    stochastic: bool = True

    def __post_init__(self) -> None:
        if not BITS[0] <= self.budget <= BITS[-1]:
            raise InputError(f"budget must be bits per value, between 2 and 8, or 32, not {self.budget:g}")
        if self.every < 1:
            raise InputError(f"reassign counts steps: it must be at least 1, not {self.every}")

    def start(self) -> Coding:
        return Assignment(self)


@dataclass(frozen=True)
class MixedBits(Varying):
    """Rows of one message, each with its own number of bits: those with 2 first, then 4, then 8."""

    codes: Tensor  # uint8 [rows]: places in `BITS`
    stochastic: bool

    def room(self, rows: int, width: int, dtype: torch.dtype) -> tuple[tuple[int, ...], torch.dtype]:
        return (sum(len(at) * across for at, _, across in self._kinds(width)),), torch.uint8

    def encode(self, x: Tensor, rows: Tensor | None, message: Tensor, key: int, memory: Memory | None) -> None:
        for (at, bits, _), part in zip(self._kinds(x.shape[1]), self._parts(message, x.shape[1]), strict=True):
            stream = kernels.stream(key, bits) if self.stochastic else None
            kernels.pack_rows(x, bits, rows=at if rows is None else rows[at.long()], stream=stream, out=part)

    def decode(self, message: Tensor, out: Tensor, positions: Tensor | None = None, add: bool = False) -> None:
        for (at, bits, _), part in zip(self._kinds(out.shape[1]), self._parts(message, out.shape[1]), strict=True):
            kernels.unpack_rows(part, bits, out, rows=at if positions is None else positions[at.long()], accumulate=add)

    def _kinds(self, width: int) -> list[tuple[Tensor, int, int]]:
        """Return for each number of bits the rows that have it, int32, and the bytes of such a row."""
        places = [(self.codes == place).nonzero().flatten().to(torch.int32) for place in range(len(BITS))]
        return [(at, bits, kernels.packed_width(width, bits)) for at, bits in zip(places, BITS, strict=True)]

    def _parts(self, message: Tensor, width: int) -> list[Tensor]:
        kinds = self._kinds(width)
        parts = message.split([len(at) * across for at, _, across in kinds])
        return [part.view(-1, across) for part, (_, _, across) in zip(parts, kinds, strict=True)]


class Assignment(Coding):
    """The bits of every row of a channel, chosen anew every so many steps from the ranges of rows since."""

    weighs = True

    def __init__(self, rule: AdaptiveBits):
        super().__init__()
        self.rule = rule
        self.sent: list[Tensor] = []  # codes per peer
        self.read: list[Tensor] = []
        self.traced: list[Tensor] = []  # per peer: sums of the squared ranges of rows, float64

    def choose(self, age: int, rows: list[Tensor]) -> list[Tensor] | None:
        ranges = [(block.amax(1) - block.amin(1)).double().square() for block in rows]
        past = self.traced or [torch.zeros_like(each) for each in ranges]
        self.traced = [old + new for old, new in zip(past, ranges, strict=True)]
        if age % self.rule.every:
            return None
        harm = torch.cat(self.traced if self.weights is None else [
            traced * weight for traced, weight in zip(self.traced, self.weights, strict=True)
        ])  # fmt: skip
        self.traced = [torch.zeros_like(each) for each in ranges]
        return list(assign(harm, self.rule.budget).split([len(block) for block in rows]))

    def codecs(self, age: int, mine: list[Tensor] | None, theirs: list[Tensor] | None) -> tuple[Each, Each]:
        if mine is not None and theirs is not None:
            self.sent, self.read = mine, theirs
        sent, read = ([MixedBits(codes, self.rule.stochastic) for codes in end] for end in (self.sent, self.read))
        return sent, read

    def state(self) -> dict[str, Tensor]:
        named = {"sent": self.sent, "read": self.read, "traced": self.traced}
        return {f"{name}.{q}": each for name, per_peer in named.items() for q, each in enumerate(per_peer)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        def of(name: str) -> list[Tensor]:
            return [state[f"{name}.{q}"].clone() for q in range(len(state) // 3)]

        self.sent, self.read, self.traced = of("sent"), of("read"), of("traced")


def assign(harm: Tensor, budget: float) -> Tensor:
    """Return the place in `BITS` of every row, uint8, given what each would do with 1 step between its extremes."""
    steps = list(zip(BITS, BITS[1:], _COST, _COST[1:], strict=False))
    gain = torch.cat([harm * (worse - better) / (more - fewer) for fewer, more, worse, better in steps])
    cost = torch.cat([torch.full_like(harm, more - fewer, dtype=torch.int64) for fewer, more, _, _ in steps])
    order = gain.argsort(descending=True, stable=True)
    bought = order[cost[order].cumsum(0) <= (budget - BITS[0]) * len(harm)]
    return torch.bincount(bought % max(len(harm), 1), minlength=len(harm)).to(torch.uint8)
