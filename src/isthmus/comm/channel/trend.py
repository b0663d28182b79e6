"""Rows by their trend: a reader predicts them from earlier ones, and is sent only what it could not predict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm.channel.codec import Coding, Each, Varying
from isthmus.errors import InputError
from isthmus.kernels import Memory

PREDICTED, CODED, MEAN = range(3)


@dataclass(frozen=True)
class Trend(Varying):
    r"""EC-Graph's compensation at the requesting end.

    Every ``period`` steps rows are sent as they are, h_0. From two such rows both ends know the trend, and predict

    .. math:: \hat h_t = h_0 + \frac{t}{period} (h_0 - h_{-period})

    Between, the sender gives each row as whichever is nearest to it (L1): the prediction, the row in ``bits`` bits, or
    the mean of these two. A predicted row costs the two bits that say so.
    """

    bits: int = 4
    period: int = 10
    predicts = True

    def __post_init__(self) -> None:
        if self.period < 1:
            raise InputError(f"period counts steps: it must be at least 1, not {self.period}")

    def start(self) -> Coding:
        return Trends(self)


@dataclass
class Line:
    """The rows that one end of a link knows exactly, and what they change by in a step."""

    base: Tensor = field(default_factory=lambda: torch.empty(0))
    rate: Tensor = field(default_factory=lambda: torch.empty(0))

    def move(self, rows: Tensor, period: int) -> None:
        """Take the rows of a step in which they were sent as they are."""
        rows = rows.to(kernels.sum_dtype(rows.dtype), copy=True)
        self.rate = (rows - self.base) / period if len(self.rate) else torch.zeros_like(rows)
        self.base = rows

    def at(self, steps: int) -> Tensor:
        """Return the rows as predicted for so many steps later."""
        return self.base + steps * self.rate


@dataclass(frozen=True)
class Whole(Varying):
    """Rows as they are, from which both ends learn the trend."""

    line: Line
    period: int

    def room(self, rows: int, width: int, dtype: torch.dtype) -> tuple[tuple[int, ...], torch.dtype]:
        return (rows, width), dtype

    def encode(self, x: Tensor, rows: Tensor | None, message: Tensor, key: int, memory: Memory | None) -> None:
        message.copy_(x if rows is None else kernels.gather_rows(x, rows))
        self.line.move(message, self.period)

    def decode(self, message: Tensor, out: Tensor, positions: Tensor | None = None, add: bool = False) -> None:
        out.copy_(message)
        self.line.move(message, self.period)


@dataclass(frozen=True)
class Compensated(Varying):
    """Rows that are predicted, coded, or the mean of both, as their codes say."""

    codes: Tensor
    bits: int
    expected: Tensor  # the predictions of all rows
    packed: Tensor | None = None  # at the sender: all rows, coded already to choose among them

    def room(self, rows: int, width: int, dtype: torch.dtype) -> tuple[tuple[int, ...], torch.dtype]:
        return (self.filled(rows), kernels.packed_width(width, self.bits)), torch.uint8

    def filled(self, rows: int) -> int:
        return int((self.codes != PREDICTED).sum())

    def encode(self, x: Tensor, rows: Tensor | None, message: Tensor, key: int, memory: Memory | None) -> None:
        assert self.packed is not None, "a sender has coded its rows"
        message.copy_(self.packed[self.codes != PREDICTED])

    def decode(self, message: Tensor, out: Tensor, positions: Tensor | None = None, add: bool = False) -> None:
        sent = self.codes != PREDICTED
        rows = self.expected.clone()
        came = kernels.unpack_rows(message, self.bits, rows.new_empty(len(message), rows.shape[1]))
        rows[sent] = torch.where((self.codes[sent] == MEAN)[:, None], (came + rows[sent]) / 2, came)
        out.copy_(rows)


class Trends(Coding):
    """The trends of a channel's rows at both ends."""

    def __init__(self, rule: Trend):
        super().__init__()
        self.rule = rule
        self.ends: dict[str, list[Line]] = {"sent": [], "read": []}  # per peer
        self._packed: list[Tensor] = []

    def choose(self, age: int, rows: list[Tensor]) -> list[Tensor] | None:
        if not self.ends["sent"]:
            self.ends = {end: [Line() for _ in rows] for end in self.ends}
        ahead = age % self.rule.period
        if not ahead:
            return None
        self._packed = [kernels.pack_rows(block, self.rule.bits) for block in rows]
        about = zip(rows, self.ends["sent"], self._packed, strict=True)
        return [self._nearest(block, line.at(ahead), packed) for block, line, packed in about]

    def codecs(self, age: int, mine: list[Tensor] | None, theirs: list[Tensor] | None) -> tuple[Each, Each]:
        bits, period, (sent, read) = self.rule.bits, self.rule.period, self.ends.values()
        if mine is None or theirs is None:
            return [Whole(line, period) for line in sent], [Whole(line, period) for line in read]
        ahead = age % period
        out = [Compensated(c, bits, line.at(ahead), p) for c, line, p in zip(mine, sent, self._packed, strict=True)]
        return out, [Compensated(c, bits, line.at(ahead)) for c, line in zip(theirs, read, strict=True)]

    def state(self) -> dict[str, Tensor]:
        lines = {f"{end}.{q}": line for end, per_peer in self.ends.items() for q, line in enumerate(per_peer)}
        return {f"{name}.base": line.base for name, line in lines.items()} | {
            f"{name}.rate": line.rate for name, line in lines.items()
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        for end in self.ends:
            each = [(state[f"{end}.{q}.base"], state[f"{end}.{q}.rate"]) for q in range(len(state) // 4)]
            self.ends[end] = [Line(base.clone(), rate.clone()) for base, rate in each]

    def _nearest(self, rows: Tensor, expected: Tensor, packed: Tensor) -> Tensor:
        """Return the code of each row that comes nearest to it."""
        if not len(rows):
            return rows.new_empty(0, dtype=torch.uint8)
        coded = kernels.unpack_rows(packed, self.rule.bits, torch.empty_like(expected))
        ways = torch.stack([expected, coded, (expected + coded) / 2])
        far = (ways - rows.to(expected.dtype)).abs().sum(2)
        codes = far.argmin(0)
        codes[far[CODED].isnan()] = CODED  # what is no number must not stay at home
        return codes.to(torch.uint8)
