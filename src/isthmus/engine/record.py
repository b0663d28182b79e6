"""Write the record of a run: config.json, metrics.jsonl, summary.json in the run folder, and measure its times."""

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
from isthmus.errors import InputError
from isthmus.files import parse_json
from isthmus.files.atomic import check_writable, write_whole, writing

KINDS = ("features", "embeddings", "gradients", "weights", "ids")


class Record:
    """The writer of the run folder (on worker 0 only; `folder` is None elsewhere)."""

    def __init__(self, folder: Path | None):
        self.folder = folder

    def begin(self, config: dict[str, Any], resumed_at: int | None) -> None:
        """Write config.json; drop metrics of steps that a resumed run will repeat."""
        if self.folder is None:
            return
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        _keep_until(self.folder / "metrics.jsonl", resumed_at)
        for log in self.folder.glob("worker-*.jsonl"):
            rank = log.stem.removeprefix("worker-")
            if rank.isdecimal() and int(rank) >= config["workers"]:  # an earlier attempt had more workers
                _keep_until(log, resumed_at)
        write_json(self.folder / "config.json", config)

    def line(self, **values: Any) -> None:
        if self.folder is not None:
            _append(self.folder / "metrics.jsonl", values)

    def end(self, summary: dict[str, Any]) -> None:
        if self.folder is not None:
            write_json(self.folder / "summary.json", summary)


class WorkerRecord:
    """The writer of ``worker-K.jsonl``: a line per step with this worker's times, and the bytes sent to each peer."""

    def __init__(self, folder: Path | None, rank: int):
        self.file = None if folder is None else folder / f"worker-{rank}.jsonl"

    def begin(self, resumed_at: int | None) -> None:
        if self.file is not None:
            with writing(self.file.parent):
                self.file.parent.mkdir(parents=True, exist_ok=True)
            _keep_until(self.file, resumed_at)

    def line(
        self, step: int, seconds: dict[str, float], ledger: Ledger, schedule: dict[str, Any] | None = None
    ) -> None:
        """Write what a step took; ``schedule``: what the scheduler of batches did for it, if there is one."""
        if self.file is None:
            return
        links = [[*link, ledger.rows[link], ledger.bytes[link]] for link in ledger.bytes]
        age = {"mean": ledger.mean_age, "max": ledger.age_max}
        line = {"step": step, "seconds": seconds, "links": links, "age": age, "hidden": ledger.hidden}
        _append(self.file, {**line, "schedule": schedule} if schedule else line)


def _keep_until(file: Path, step: int | None) -> None:
    """Restart a file of lines, but keep lines of steps up to `step`, which will not be repeated."""
    kept = []
    if step is not None and file.is_file():
        for line in file.read_text(errors="replace").splitlines():
            try:
                entry = parse_json(line.encode(), str(file), "")
            except InputError:
                break  # a line cut short by the end of the earlier run
            if not isinstance(entry, dict) or not isinstance(entry.get("step"), int):
                raise InputError(f"{file} has a line without a step: correct it or take it out, or remove the file")
            if entry["step"] <= step:
                kept.append(line)
    write_whole(file, "".join(line + "\n" for line in kept))


def _append(file: Path, values: dict[str, Any]) -> None:
    with writing(file), file.open("a") as opened:
        opened.write(json.dumps(without_nan(values)) + "\n")


def check_folder(folder: Path, resume: bool) -> None:
    """Refuse to overwrite an earlier run, or to resume one that does not exist."""
    if (folder / "config.json").exists() and not resume:
        raise InputError(f"{folder} holds an earlier run: give another --out, or --resume to go on with it")
    if not (folder / "config.json").exists() and resume:
        raise InputError(f"{folder} holds no run to resume: leave --resume out, or give the run's own --out")
    check_writable(folder)


def without_nan(content: Any) -> Any:
    """Replace NaN and infinity by None, which json can hold: a score that does not exist is null."""
    if isinstance(content, dict):
        return {key: without_nan(value) for key, value in content.items()}
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content


def write_json(path: Path, content: Any) -> None:
    """Write a json file, whole or not at all."""
    write_whole(path, json.dumps(without_nan(content), indent=1) + "\n")


class Stopwatch:
    """The times of a run on this worker: seconds by purpose, and the length of every step."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()
        self.seconds: dict[str, float] = dict.fromkeys(("compute", "wait", "sample", "reduce", "eval"), 0.0)
        self.steps: list[float] = []

    def step(self, begun: float, ledger: Ledger) -> dict[str, float]:
        """Count a step that began at `begun` and ends now; time that is not in its ledger was computing."""
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
    """Return the peak memory of this process."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would also count the memory of the parent at the fork
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def over_workers(values: list[float], transport: Transport) -> torch.Tensor:
    """Return the values of every worker, float64 [workers, values]."""
    table = torch.zeros(transport.size, len(values), dtype=torch.float64)
    table[transport.rank] = torch.tensor(values, dtype=torch.float64)
    return transport.all_reduce(table, Where("record", "reduce", 0, "weights"))


def probed_errors(errors: dict[tuple[int, str], tuple[float, float]], transport: Transport) -> dict[str, float]:
    """Return ‖held − fresh‖ / ‖fresh‖ over all workers, per site and pass, from each worker's two sums of squares."""
    places = sorted(errors)
    sums = torch.tensor([errors[place] for place in places], dtype=torch.float64).reshape(-1, 2)
    transport.all_reduce(sums, Where("record", "reduce", 0, "probe"))
    return {
        f"{site} {direction}": math.sqrt(gap / size) if size else 0.0
        for (site, direction), (gap, size) in zip(places, sums.tolist(), strict=True)
    }
