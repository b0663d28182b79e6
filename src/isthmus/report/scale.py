"""Scales: from values to positions on an axis, and the round values that are written beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

TICKS = 5  # about so many on each axis
LOG_FROM = 50.0  # values that differ by this factor need a logarithmic axis to be told apart


@dataclass(frozen=True)
class Scale:
    """An axis from ``low`` at ``start`` to ``high`` at ``end`` (the two may run down, as y does in SVG)."""

    low: float
    high: float
    start: float
    end: float
    step: float = 1.0  # between ticks of a linear axis
    log: bool = False

    @staticmethod
    def over(
        values: Iterable[float],
        start: float,
        end: float,
        *,
        zero: bool = False,
        exact: bool = False,
        may_log: bool = False,
    ) -> Scale:
        """Return an axis that holds the values.

        ``zero``: it holds 0 too; ``exact``: it ends with the last value, not with a round one; ``may_log``: it is
        logarithmic if the values differ by a factor of LOG_FROM or more.
        """
        known = list(values) or [0.0, 1.0]
        low, high = min(known), max(known)
        if may_log and low > 0 and high / low >= LOG_FROM:
            return Scale(low, high, start, end, log=True)
        if zero:
            low, high = min(low, 0.0), max(high, 0.0)
        if high - low <= 1e-9 * max(abs(low), abs(high)):
            room = abs(low) / 2 or 1.0  # a single value, in the middle
            low, high = low - room, high + room
        step = _round_step((high - low) / TICKS)
        if not exact:
            low, high = math.floor(low / step) * step, math.ceil(high / step) * step
        return Scale(low, high, start, end, step)

    def at(self, value: float) -> float:
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        place = math.log(value) if self.log else value
        return self.start + (self.end - self.start) * (place - low) / (high - low)

    def ticks(self) -> list[tuple[float, str]]:
        """Return (value, text) of about TICKS round values."""
        if self.log:
            return [(value, f"{value:g}") for value in self._log_ticks()]
        step = self.step
        first, last = math.ceil(self.low / step - 1e-6), math.floor(self.high / step + 1e-6)
        decimals = max(0, -math.floor(math.log10(step)))
        plain = decimals <= 5 and max(abs(self.low), abs(self.high)) < 1e7
        return [(k * step, f"{k * step:,.{decimals}f}" if plain else f"{k * step:.4g}") for k in range(first, last + 1)]

    def _log_ticks(self) -> list[float]:
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for digits in ((1, 2, 5), (1, 3), (1,)):
            values = [float(f"{digit}e{decade}") for decade in decades for digit in digits]
            inside = [value for value in values if self.low <= value <= self.high]
            if len(inside) <= TICKS + 1:
                break
        return inside[:: max(1, round(len(inside) / TICKS))]


def _round_step(step: float) -> float:
    """Return the smallest of … 0.5, 1, 2, 5, 10 … that is not below ``step``."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= step * (1 - 1e-9))
