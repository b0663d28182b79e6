"""One run as the page sees it: the content of its folder, and the figures that follow from it."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from isthmus.engine.record import KINDS
from isthmus.partition import Book
from isthmus.report.text import number

PURPOSES = ("compute", "wait", "sample", "reduce")  # the uses of a step's time
UNSPLIT = "steps, not told apart"

Link = tuple[int | str, str]  # (site, pass)


def _zeros() -> dict[Any, float]:
    return defaultdict(float)


@dataclass
class WorkerLog:
    """The step-by-step log of one worker (worker-K.jsonl), added up while it is read."""

    rank: int
    seconds: dict[str, float] = field(default_factory=_zeros)  # by purpose, of all steps
    bytes: dict[Link, float] = field(default_factory=_zeros)  # sent, of all steps
    rows: dict[int, float] = field(default_factory=dict)  # step → rows sent
    age: dict[int, tuple[float, float]] = field(default_factory=dict)  # step → (mean, max), in steps
    hidden: list[float] = field(default_factory=list)  # per step: the share of transfer time without a wait
    schedule: dict[int, dict[str, float]] = field(default_factory=dict)  # step → what the scheduler of batches did

    @property
    def steps(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Run:
    """A run folder. A run that has not ended has no summary; older runs have no worker logs."""

    folder: Path
    name: str  # distinguishes it from the other runs of the page
    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    summary: dict[str, Any] | None = None
    workers: list[WorkerLog] = field(default_factory=list)
    book: Book | None = None
    without_book: str = ""  # the reason why there is none

    @property
    def graph(self) -> str:
        return str(self.config.get("graph", "unknown graph"))

    @property
    def recipe(self) -> str:
        return str(self.config.get("recipe", "unknown recipe"))

    @property
    def metric(self) -> str | None:
        """The name of the scores; None while it is not known."""
        test = (self.summary or {}).get("test")
        name = test.get("metric") if isinstance(test, dict) else self.config.get("metric")
        return None if name is None else str(name)

    @property
    def steps_done(self) -> int:
        return self.metrics[-1]["step"] if self.metrics else 0

    def noted(self, *path: str) -> float | None:
        """Return a number of the summary; None where there is no such number."""
        value: Any = self.summary
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return number(value)

    def curve(self, name: str) -> list[tuple[float, float | None, float | None]]:
        """Return (step, seconds of all steps so far, value) for each line of metrics that has ``name``."""
        points, elapsed = [], 0.0
        for line in self.metrics:
            seconds = number(line.get("seconds"))
            elapsed += math.nan if seconds is None else seconds
            if name in line:
                points.append((float(line["step"]), number(elapsed), number(line[name])))
        return points

    @cached_property
    def best(self) -> dict[str, Any]:
        """The evaluation with the highest validation score (without validation nodes the last): step, val, test."""
        judged = [line for line in self.metrics if "val" in line]
        if not judged:
            return {}
        if number(judged[-1]["val"]) is None:
            return judged[-1]
        return max(judged, key=lambda line: -math.inf if (val := number(line["val"])) is None else val)

    @property
    def test(self) -> float | None:
        return self.noted("test", "score") if self.summary is not None else number(self.best.get("test"))

    @property
    def step_seconds(self) -> float | None:
        """The median length of a step."""
        known = [seconds for line in self.metrics if (seconds := number(line.get("seconds"))) is not None]
        return self.noted("step_seconds", "median") or (statistics.median(known) if known else None)

    @cached_property
    def seconds(self) -> dict[str, float]:
        """The seconds of worker 0 by purpose; for a run that has not ended, as far as they are known."""
        if self.summary is not None:
            known = {name: self.noted("seconds", name) or 0.0 for name in (*PURPOSES, "eval")}
            other = (self.noted("seconds", "total") or 0.0) - sum(known.values())
            return {**known, "other": max(other, 0.0)}
        if self.workers and self.workers[0].rank == 0:
            return {name: self.workers[0].seconds[name] for name in PURPOSES}
        return {UNSPLIT: self.seconds_of_steps}

    @property
    def seconds_of_steps(self) -> float:
        return sum(number(line.get("seconds")) or 0.0 for line in self.metrics)

    @property
    def resumed(self) -> bool:
        """Whether the metrics have steps from before the last start, which the summary does not count."""
        counted = sum(self.seconds.get(name, 0.0) for name in PURPOSES)
        return self.summary is not None and 1.05 * counted < self.seconds_of_steps

    @property
    def bytes_by_kind(self) -> dict[str, float]:
        """The bytes sent per step by all workers, by kind."""
        return {kind: self.noted("bytes_per_step", kind) or 0.0 for kind in KINDS} if self.summary is not None else {}

    @cached_property
    def bytes_by_link(self) -> dict[Link, float]:
        """The bytes sent per step by all workers, by site and pass."""
        total: dict[Link, float] = _zeros()
        for worker in self.workers:
            for link, size in worker.bytes.items():
                total[link] += size / max(worker.steps, 1)
        return dict(total)

    @property
    def bytes_per_step(self) -> float | None:
        known = self.bytes_by_kind or self.bytes_by_link
        return sum(known.values()) if known else None

    @property
    def hidden(self) -> float | None:
        """The share of transfer time that overlapped with computation, because no worker waited."""
        known = [value for worker in self.workers for value in worker.hidden]
        noted = self.noted("hidden")
        return statistics.fmean(known) if noted is None and known else noted

    @cached_property
    def rows_sent(self) -> list[tuple[float, float]]:
        """The rows sent by all workers, as (step, rows)."""
        total: dict[int, float] = _zeros()
        for worker in self.workers:
            for step, rows in worker.rows.items():
                total[step] += rows
        return [(float(step), rows) for step, rows in sorted(total.items())]

    @cached_property
    def ages(self) -> list[tuple[float, float, float]]:
        """The ages of the halo rows that were read, over all workers, as (step, mean, oldest), in steps."""
        steps = sorted({step for worker in self.workers for step in worker.age})
        found = [(step, [worker.age[step] for worker in self.workers if step in worker.age]) for step in steps]
        return [(float(s), statistics.fmean(m for m, _ in ages), max(o for _, o in ages)) for s, ages in found]

    @property
    def stale(self) -> bool:
        return bool(self.noted("staleness", "max")) or any(oldest > 0 for _, _, oldest in self.ages)
