"""The record of a run: config.json, metrics.jsonl, summary.json in the run folder, and the times behind them."""

from __future__ import annotations

import json
import math
import resource
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from isthmus.comm import Ledger, Transport, Where
from isthmus.engine.disk import write_whole, writing
from isthmus.errors import InputError
from isthmus.files.atomic import check_writable

KINDS = ("features", "embeddings", "gradients", "weights", "ids")


class Record:
    """Writes the run folder (on worker 0 only; `folder` is None elsewhere)."""

    def __init__(self, folder: Path | None):
        self.folder = folder

    def begin(self, config: dict[str, Any], resumed_at: int | None) -> None:
        """Writes config.json; metrics of steps that a resumed run will do again are dropped."""
        if self.folder is None:
            return
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        _keep_until(self.folder / "metrics.jsonl", resumed_at)
        for log in self.folder.glob("worker-*.jsonl"):
            if int(log.stem.removeprefix("worker-")) >= config["workers"]:  # there were more of them before
                _keep_until(log, resumed_at)
        write_json(self.folder / "config.json", config)

    def line(self, **values: Any) -> None:
        if self.folder is not None:
            _append(self.folder / "metrics.jsonl", values)

    def end(self, summary: dict[str, Any]) -> None:
        if self.folder is not None:
            write_json(self.folder / "summary.json", summary)


class WorkerRecord:
    """Writes ``worker-K.jsonl``: a line per step with this worker's own times, and what it sent to whom."""

    def __init__(self, folder: Path | None, rank: int):
        self.file = None if folder is None else folder / f"worker-{rank}.jsonl"

    def begin(self, resumed_at: int | None) -> None:
        if self.file is not None:
            with writing(self.file.parent):
                self.file.parent.mkdir(parents=True, exist_ok=True)
            _keep_until(self.file, resumed_at)

    def line(self, step: int, seconds: dict[str, float], ledger: Ledger) -> None:
        if self.file is None:
            return
        links = [[*link, ledger.rows[link], ledger.bytes[link]] for link in ledger.bytes]
        age = {"mean": ledger.mean_age, "max": ledger.age_max}
        _append(self.file, {"step": step, "seconds": seconds, "links": links, "age": age, "hidden": ledger.hidden})


def _keep_until(file: Path, step: int | None) -> None:
    """Begins a file of lines anew; lines of steps up to `step` stay, since those will not be done again."""
    kept = []
    if step is not None and file.exists():
        for line in file.read_text().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                break  # a line cut short by the end of the earlier run
            if entry["step"] <= step:
                kept.append(line)
    write_whole(file, "".join(line + "\n" for line in kept))


def _append(file: Path, values: dict[str, Any]) -> None:
    with writing(file), file.open("a") as opened:
        opened.write(json.dumps(without_nan(values)) + "\n")


def check_folder(folder: Path, resume: bool) -> None:
    """An earlier run stays untouched unless it is to be resumed; there must be one to resume."""
    if (folder / "config.json").exists() and not resume:
        raise InputError(f"{folder} holds an earlier run: give another --out, or --resume to go on with it")
    if not (folder / "config.json").exists() and resume:
        raise InputError(f"{folder} holds no run to resume: leave --resume out, or give the run's own --out")
    check_writable(folder)


def workers_of(folder: Path) -> int:
    """How many workers a run had at last."""
    try:
        return int(json.loads((folder / "config.json").read_text())["workers"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder / 'config.json'} is damaged ({error!r}): say how many with --workers") from error


def threads_of(folder: Path) -> int | None:
    """How many threads each worker of a run had at last; None if nobody knows."""
    try:
        return int(json.loads((folder / "config.json").read_text())["threads"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def steps_told(folder: Path) -> int | None:
    """Of how many steps the summary of a run tells; None if it has none, as it ended before that was written."""
    try:
        return int(json.loads((folder / "summary.json").read_text())["steps"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def without_nan(content: Any) -> Any:
    """Content as json can hold it: a score that does not exist is null."""
    if isinstance(content, dict):
        return {key: without_nan(value) for key, value in content.items()}
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content


def write_json(path: Path, content: Any) -> None:
    """Whole or not at all."""
    write_whole(path, json.dumps(without_nan(content), indent=1) + "\n")


class Stopwatch:
    """Where the time of a run goes, per worker: seconds by purpose, and the length of every step."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()
        self.seconds: dict[str, float] = dict.fromkeys(("compute", "wait", "sample", "reduce", "eval"), 0.0)
        self.steps: list[float] = []

    def step(self, begun: float, ledger: Ledger) -> dict[str, float]:
        """Counts a step that began at `begun` and ends now; what was not in its ledger was computing."""
        taken = time.perf_counter() - begun
        split = {"wait": ledger.wait_seconds, "sample": ledger.sample_seconds, "reduce": ledger.reduce_seconds}
        split = {"compute": taken - sum(split.values()), **split}
        self.steps.append(taken)
        for name, value in split.items():
            self.seconds[name] += value
        return {name: round(value, 6) for name, value in {"step": taken, **split}.items()}

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


def over_workers(values: list[float], transport: Transport) -> torch.Tensor:
    """The values of every worker, float64 [workers, values]."""
    table = torch.zeros(transport.size, len(values), dtype=torch.float64)
    table[transport.rank] = torch.tensor(values, dtype=torch.float64)
    return transport.all_reduce(table, Where("record", "reduce", 0, "weights"))


def probed_errors(errors: dict[tuple[int, str], tuple[float, float]], transport: Transport) -> dict[str, float]:
    """‖held − fresh‖ / ‖fresh‖ over all workers, per site and direction, from each worker's two sums of squares."""
    places = sorted(errors)
    sums = torch.tensor([errors[place] for place in places], dtype=torch.float64).reshape(-1, 2)
    transport.all_reduce(sums, Where("record", "reduce", 0, "probe"))
    return {
        f"{site} {direction}": math.sqrt(gap / size) if size else 0.0
        for (site, direction), (gap, size) in zip(places, sums.tolist(), strict=True)
    }
