"""A comparison as numbers: every recipe over all seeds, against the base and against a target score."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from isthmus.errors import InputError
from isthmus.report.contender import Contender, Spread
from isthmus.report.read import read_object, read_run
from isthmus.report.runs_table import BASELINE
from isthmus.report.text import number

SHARE = 0.99  # share of the base's best score that is the target, if none is given


@dataclass(frozen=True)
class Comparison:
    folder: Path
    asked: dict[str, Any]  # compare.json
    contenders: list[Contender]
    given_target: float | None = None

    @cached_property
    def base(self) -> Contender:
        """The contender that the others are measured against: plain vanilla, else any vanilla, else the first."""
        plain = [contender for contender in self.contenders if contender.label == BASELINE]
        vanilla = [contender for contender in self.contenders if contender.recipe == BASELINE]
        return [*plain, *vanilla, *self.contenders][0]

    @cached_property
    def split(self) -> str:
        """The nodes whose score is judged while training: validation nodes, or test nodes where there are none."""
        return "val" if any(contender.best("val") for contender in self.contenders) else "test"

    @cached_property
    def target(self) -> float | None:
        """The score to reach; None if no run has a score."""
        if self.given_target is not None:
            return self.given_target
        known = [best for one in (self.base, *self.contenders) if (best := one.best(self.split))]
        return SHARE * known[0].mean if known else None

    @property
    def metric(self) -> str:
        return next((run.metric for one in self.contenders for run in one.runs.values() if run.metric), "score")

    def seconds_to_target(self, contender: Contender) -> dict[int, float | None]:
        return {} if self.target is None else contender.seconds_to(self.target, self.split)

    def speed_up(self, contender: Contender) -> Spread | None:
        """Return the median step time of the base divided by the contender's, seed by seed."""
        seconds = {seed: run.step_seconds for seed, run in contender.runs.items()}
        return _ratios({seed: run.step_seconds for seed, run in self.base.runs.items()}, seconds)

    def speed_up_to_target(self, contender: Contender) -> Spread | None:
        return _ratios(self.seconds_to_target(self.base), self.seconds_to_target(contender))

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `isthmus compare --json` prints."""
        names = ("graph", "workers", "link", "measured", "hosts", "seeds")
        return {
            "folder": str(self.folder),
            **{name: self.asked.get(name) for name in names},
            "metric": self.metric,
            "base": self.base.label,
            "target": {"score": self.target, "of": self.split},
            "recipes": [self._row(contender) for contender in self.contenders],
        }

    def _row(self, contender: Contender) -> dict[str, Any]:
        wire = contender.wire
        return {
            "label": contender.label,
            "recipe": contender.recipe,
            "runs": {seed: str(run.folder) for seed, run in contender.runs.items()},
            "failed": contender.failures,
            "test": _dict(contender.test),
            "step_seconds": _dict(contender.step_seconds),
            "step_split": contender.split,
            "speed_up": _dict(self.speed_up(contender)),
            "bytes_per_step": contender.bytes_by_kind,
            "memory_peak_bytes": _dict(contender.memory),
            "seconds_to_target": self.seconds_to_target(contender),
            "speed_up_to_target": _dict(self.speed_up_to_target(contender)),
            "wire": None if wire is None else {"payload_bytes": wire[0], "counted_bytes": wire[1]},
        }


def read_comparison(folder: Path, target: float | None = None) -> Comparison:
    """Return the comparison in a folder that `isthmus compare` has written; runs that are missing are left out."""
    if not (folder / "compare.json").is_file():
        raise InputError(f"{folder} holds no comparison (no compare.json): give the --out of `isthmus compare`")
    asked = read_object(folder / "compare.json")
    contenders = []
    for row in asked["recipes"]:
        one = Contender(row["label"], row["recipe"])
        for seed in range(asked["seeds"]):
            run = folder / row["folder"] / f"seed-{seed}"
            if (run / "summary.json").is_file():
                one.runs[seed] = read_run(run, one.label)
            elif (run / "failed.json").is_file():
                one.failures[seed] = str(read_object(run / "failed.json").get("error"))
        contenders.append(one)
    return Comparison(folder, asked, contenders, target)


def _ratios(above: dict[int, float | None], below: dict[int, float | None]) -> Spread | None:
    """Return above / below, seed by seed, since runs of one seed are minutes apart."""
    pairs = ((number(above.get(seed)), number(value)) for seed, value in below.items())
    return Spread.of(one / other if one and other else None for one, other in pairs)


def _dict(spread: Spread | None) -> dict[str, Any] | None:
    return None if spread is None else asdict(spread)
