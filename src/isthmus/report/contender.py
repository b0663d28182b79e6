"""One recipe of a comparison: its runs, one for each seed, and their joint figures."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from isthmus.engine.record import KINDS
from isthmus.report.run import PURPOSES, Run
from isthmus.report.text import number


@dataclass(frozen=True)
class Spread:
    """The mean and standard deviation of some values (of a sample; None for a single value)."""

    mean: float
    std: float | None
    values: tuple[float, ...]

    @staticmethod
    def of(values: Iterable[float | None]) -> Spread | None:
        """Return the spread of the values that are known; None if none is."""
        known = tuple(value for value in values if value is not None)
        if not known:
            return None
        return Spread(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, known)


@dataclass(frozen=True)
class Contender:
    """A recipe's runs and failures by seed. Figures are over the runs that ended well."""

    label: str
    recipe: str
    runs: dict[int, Run] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)

    @property
    def test(self) -> Spread | None:
        return Spread.of(run.test for run in self.runs.values())

    @property
    def step_seconds(self) -> Spread | None:
        return Spread.of(run.step_seconds for run in self.runs.values())

    @property
    def memory(self) -> Spread | None:
        return Spread.of(run.noted("memory_peak_bytes") for run in self.runs.values())

    @property
    def split(self) -> dict[str, float]:
        """The seconds of a mean step by purpose, over seeds and workers."""
        logs = [worker for run in self.runs.values() for worker in run.workers if worker.steps]
        return {name: _mean(log.seconds[name] / log.steps for log in logs) for name in PURPOSES} if logs else {}

    @property
    def bytes_by_kind(self) -> dict[str, float]:
        """The bytes sent per step by all workers, by kind."""
        known = [run.bytes_by_kind for run in self.runs.values()]
        return {kind: _mean(kinds[kind] for kinds in known) for kind in KINDS} if known else {}

    @property
    def wire(self) -> tuple[float, float] | None:
        """The bytes between hosts in all runs: as interfaces counted them (without headers), and as the program did."""
        known = [(run.noted("link", "payload_bytes"), run.noted("link", "counted_bytes")) for run in self.runs.values()]
        pairs = [(payload, counted) for payload, counted in known if payload is not None and counted is not None]
        return (sum(p for p, _ in pairs), sum(c for _, c in pairs)) if pairs else None

    def best(self, split: str) -> Spread | None:
        """Return the best scores of the runs."""
        curves = ([value for _, _, value in run.curve(split) if value is not None] for run in self.runs.values())
        return Spread.of(max(curve, default=None) for curve in curves)

    def seconds_to(self, target: float, split: str) -> dict[int, float | None]:
        """Return, by seed, the seconds of steps until the score first reached the target; None if it never did."""
        return {
            seed: next((s for _, s, value in run.curve(split) if value is not None and value >= target), None)
            for seed, run in self.runs.items()
        }

    def mean_curve(self, split: str) -> list[tuple[float, float | None, float | None]]:
        """Return (step, seconds, score), means over the seeds, at the steps that all of them have evaluated."""
        curves = [{step: (seconds, value) for step, seconds, value in run.curve(split)} for run in self.runs.values()]
        steps = [step for step in curves[0] if all(step in curve for curve in curves)] if curves else []
        seconds, values = ([_mean_or_none(curve[s][axis] for curve in curves) for s in steps] for axis in (0, 1))
        return list(zip(steps, seconds, values, strict=True))


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)


def _mean_or_none(values: Iterable[float | None]) -> float | None:
    known = [number(value) for value in values]
    return None if None in known else statistics.fmean(value for value in known if value is not None)
