"""The record of a run: config.json, metrics.jsonl, summary.json in the run folder, and the times behind them."""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from isthmus.comm import Ledger, Transport, Where
from isthmus.errors import InputError

KINDS = ("features", "embeddings", "gradients", "weights", "ids")


class Record:
    """Writes the run folder (on worker 0 only; `folder` is None elsewhere)."""

    def __init__(self, folder: Path | None):
        self.folder = folder

    def begin(self, config: dict[str, Any], resumed_at: int | None) -> None:
        """Writes config.json; metrics of steps that a resumed run will do again are dropped."""
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make {self.folder} ({error.strerror}): give another --out") from error
        write_json(self.folder / "config.json", config)
        metrics, kept = self.folder / "metrics.jsonl", []
        if resumed_at is not None and metrics.exists():
            for line in metrics.read_text().splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:
                    break  # a line cut short by the end of the earlier run
                if entry["step"] <= resumed_at:
                    kept.append(line)
        metrics.write_text("".join(line + "\n" for line in kept))

    def line(self, **values: Any) -> None:
        if self.folder is not None:
            with (self.folder / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(without_nan(values)) + "\n")

    def end(self, summary: dict[str, Any]) -> None:
        if self.folder is not None:
            write_json(self.folder / "summary.json", summary)


def check_folder(folder: Path, resume: bool) -> None:
    """An earlier run stays untouched unless it is to be resumed; there must be one to resume."""
    if (folder / "config.json").exists() and not resume:
        raise InputError(f"{folder} holds an earlier run: give another --out, or --resume to go on with it")
    if not (folder / "config.json").exists() and resume:
        raise InputError(f"{folder} holds no run to resume: leave --resume out, or give the run's own --out")
    check_writable(folder)


def check_writable(folder: Path) -> None:
    """A folder that is there and can be written to, or can be made."""
    above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise InputError(f"cannot write {folder}: {above} is no folder that can be written to; give another --out")


def without_nan(content: Any) -> Any:
    """Content as json can hold it: a score that does not exist is null."""
    if isinstance(content, dict):
        return {key: without_nan(value) for key, value in content.items()}
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content


def write_json(path: Path, content: Any) -> None:
    """Whole or not at all."""
    building = path.with_name(f".{path.name}.{os.getpid()}")
    building.write_text(json.dumps(without_nan(content), indent=1) + "\n")
    building.rename(path)


class Stopwatch:
    """Where the time of a run goes, per worker: seconds by purpose, and the length of every step."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()
        self.seconds: dict[str, float] = dict.fromkeys(("compute", "wait", "sample", "reduce", "eval"), 0.0)
        self.steps: list[float] = []

    @contextmanager
    def step(self, ledger: Ledger):
        """Times one step; what was not waiting or reducing was computing."""
        before, begun = (ledger.wait_seconds, ledger.reduce_seconds), time.perf_counter()
        yield
        taken = time.perf_counter() - begun
        wait, reduce = ledger.wait_seconds - before[0], ledger.reduce_seconds - before[1]
        self.steps.append(taken)
        self.seconds["wait"] += wait
        self.seconds["reduce"] += reduce
        self.seconds["compute"] += taken - wait - reduce

    @contextmanager
    def evaluation(self):
        begun = time.perf_counter()
        yield
        self.seconds["eval"] += time.perf_counter() - begun

    def summary(self) -> dict[str, Any]:
        steps = torch.tensor(self.steps or [0.0], dtype=torch.float64)
        total = time.perf_counter() - self.begun
        return {
            "step_seconds": {"median": float(steps.median()), "p90": float(steps.quantile(0.9))},
            "seconds": {**{name: round(value, 6) for name, value in self.seconds.items()}, "total": round(total, 6)},
        }


def memory_peak_bytes() -> int:
    """The most memory this process ever held."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the starting process held when it forked
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def sum_over_workers(values: list[float], transport: Transport) -> list[float]:
    where = Where("record", "reduce", 0, "weights")
    return transport.all_reduce(torch.tensor(values, dtype=torch.float64), where).tolist()
