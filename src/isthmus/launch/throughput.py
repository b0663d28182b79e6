"""Average the time of steps by purpose and the bytes they send, so that a person can read them."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from isthmus.units import size_text

WINDOW = 20  # steps
PURPOSES = ("compute", "wait", "sample", "reduce")


class Throughput:
    """Means over the last `WINDOW` steps of this worker, and the time left until its last step."""

    def __init__(self, steps: int):
        self.steps, self.done = steps, 0
        self.recent: deque[dict[str, float]] = deque(maxlen=WINDOW)
        self.first: tuple[int, float] | None = None  # the first step of this process and when it ended

    def add(self, line: dict[str, Any], now: float | None = None) -> None:
        """Count a step, given the line that training passes to its watchers."""
        self.now, self.done = time.perf_counter() if now is None else now, line["step"]
        self.first = self.first or (self.done, self.now)
        self.recent.append({**line["split"], "bytes": line["bytes"]})

    def mean(self, of: str) -> float:
        return sum(step[of] for step in self.recent) / len(self.recent)

    @property
    def left(self) -> float | None:
        """Return the seconds until the last step, evaluations and checkpoints included; None if not yet known."""
        if self.first is None or self.done == self.first[0]:
            return None
        step, ended = self.first  # that step itself is not counted: it also sends the features
        return (self.steps - self.done) * (self.now - ended) / (self.done - step)

    def __str__(self) -> str:
        """Return a line such as "45.2 ms/step: compute 20.1, wait 22.0, sample 0.1, reduce 3.0; 1.2 MiB sent"."""
        step = self.mean("step")
        unit, factor = ("ms", 1e3) if step < 1 else ("s", 1)
        split = ", ".join(f"{purpose} {_three_digits(factor * self.mean(purpose))}" for purpose in PURPOSES)
        return f"{_three_digits(factor * step)} {unit}/step: {split}; {size_text(self.mean('bytes'))} sent"


def _three_digits(value: float) -> str:
    """Return 0.1, 45.2 or 452; computing is a remainder, which rounding may make negative."""
    return f"{max(value, 0.0):.{1 if value < 99.95 else 0}f}"


def clock(seconds: float | None) -> str:
    """Return a duration as 1:05:09 or 0:12, or -:-- if it is unknown."""
    if seconds is None:
        return "-:--"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
