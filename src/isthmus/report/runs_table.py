"""Runs side by side, as numbers: the results and costs of each, and the options that differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.engine.config import flat
from isthmus.report.run import Run

BASELINE = "vanilla"


@dataclass(frozen=True)
class Option:
    """The values of one option in every run; None where a run does not have it."""

    name: str
    values: list[str | None]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


def base(runs: Sequence[Run]) -> Run:
    """Return the run that the others are measured against: the first with the recipe vanilla, else the first."""
    return next((run for run in runs if run.recipe == BASELINE), runs[0])


def speed_up(run: Run, against: Run) -> float | None:
    """Return the median step time of ``against`` divided by this run's; None if they trained on different graphs."""
    one, other = against.step_seconds, run.step_seconds
    return one / other if one and other and run.graph == against.graph else None


def overview(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the page's first table, as `isthmus report --json` prints it."""
    against = base(runs)
    return [
        {
            "run": run.name,
            "recipe": run.recipe,
            "graph": run.graph,
            "workers": run.config.get("workers"),
            "steps": run.steps_done,
            "finished": run.summary is not None,
            "test": {"score": run.test, "metric": run.metric},
            "step_seconds": run.step_seconds,
            "speed_up": speed_up(run, against),
            "bytes_per_step": run.bytes_per_step,
            "hidden": run.hidden,
            "memory_peak_bytes": run.noted("memory_peak_bytes"),
        }
        for run in runs
    ]


def options(runs: Sequence[Run]) -> list[Option]:
    """Return every option of any run; those that differ come first."""
    written = [{name: _text(value) for name, value in flat(run.config).items()} for run in runs]
    names = dict.fromkeys(name for config in written for name in config)
    found = [Option(name, [config.get(name) for config in written]) for name in names]
    return sorted(found, key=lambda option: not option.differs)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
