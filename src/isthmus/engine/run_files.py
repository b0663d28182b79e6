"""The json files of a run folder as dataclasses, against which they are checked when read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isthmus.errors import InputError
from isthmus.files import read_as, read_json


@dataclass(frozen=True)
class RunFacts:
    """The facts in config.json besides the `TrainConfig`."""

    model: dict[str, Any]
    parts: str
    workers: int
    graph: str = ""
    model_class: str | None = None
    features_in: int | None = None
    classes: int | None = None
    threads: int | None = None
    versions: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def read(folder: Path, remedy: str = "copy the run folder again") -> RunFacts:
        """Read config.json."""
        file = folder / "config.json"
        return read_as(RunFacts, read_json(file, remedy), str(file), remedy)


@dataclass(frozen=True)
class Metrics:
    """One line of metrics.jsonl. A score that does not exist is None."""

    step: int
    loss: float | None = None
    seconds: float | None = None
    train: float | None = None
    val: float | None = None
    test: float | None = None
    error: dict[str, float | None] | None = None


@dataclass(frozen=True)
class TestScore:
    """The score of the best weights on the test nodes."""

    score: float | None = None
    metric: str | None = None


@dataclass(frozen=True)
class Summary:
    """The content of summary.json; that of older runs has fewer fields."""

    recipe: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    graph: str = ""
    workers: int | None = None
    steps: int | None = None
    seed: int | None = None
    best_val: float | None = None
    best_step: int | None = None
    train: float | None = None
    test: TestScore = field(default_factory=TestScore)
    step_seconds: dict[str, float | None] = field(default_factory=dict)
    seconds: dict[str, float | None] = field(default_factory=dict)
    bytes_per_step: dict[str, float | None] = field(default_factory=dict)
    rows: dict[str, float | None] = field(default_factory=dict)
    hit_rate: float | None = None
    staleness: dict[str, float | None] = field(default_factory=dict)
    hidden: float | None = None
    memory_peak_bytes: float | None = None
    run: str | None = None
    link: dict[str, Any] = field(default_factory=dict)


def workers_of(folder: Path) -> int:
    """Return the number of workers of a run when it was last started."""
    return RunFacts.read(folder, "copy it again, or say how many with --workers").workers


def threads_of(folder: Path) -> int | None:
    """Return the number of threads per worker of a run when it was last started; None if unknown."""
    try:
        return RunFacts.read(folder).threads
    except InputError:
        return None


def steps_told(folder: Path) -> int | None:
    """Return the number of steps in the summary of a run; None if the run ended before it was written."""
    file = folder / "summary.json"
    try:
        return read_as(Summary, read_json(file, ""), str(file), "").steps
    except InputError:
        return None
