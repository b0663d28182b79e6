"""Run folders made by hand, small enough that every figure on the page can be worked out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LOSSES = (2.0, 1.0, 0.5, 0.25)
VALS = {2: 0.5, 4: 0.75}


def run_folder(
    folder: Path,
    *,
    recipe: str = "exact",
    graph: str = "ring",
    step_seconds: float = 0.5,
    finished: bool = True,
    workers: int = 0,
    age: int = 0,
    **config: Any,
) -> Path:
    """Four steps of ``step_seconds``, two evaluations; ``workers`` logs in which rows grow old up to ``age``."""
    folder.mkdir(parents=True)
    lines = []
    for step, loss in enumerate(LOSSES, 1):
        judged = {"train": 0.9, "val": VALS[step], "test": VALS[step] - 0.1} if step in VALS else {}
        lines.append({"step": step, "loss": loss, "seconds": step_seconds, **judged})
    options = {"recipe": recipe, "steps": 4, "model": {"model": "gcn", "hidden": 8}, "metric": None, "workers": 2}
    write(folder / "config.json", {**options, "graph": graph, "parts": str(folder / "parts"), **config})
    write_lines(folder / "metrics.jsonl", lines)
    if finished:
        write(folder / "summary.json", summary(recipe, step_seconds, age))
    for rank in range(workers):
        write_lines(folder / f"worker-{rank}.jsonl", [logged(step, rank, step_seconds, age) for step in (1, 2, 3, 4)])
    return folder


def summary(recipe: str, step_seconds: float, age: int) -> dict[str, Any]:
    return {
        "recipe": recipe,
        "test": {"score": 0.65, "metric": "accuracy"},
        "step_seconds": {"median": step_seconds, "p90": step_seconds},
        "seconds": {
            "compute": 2 * step_seconds,
            "wait": step_seconds,
            "reduce": step_seconds,
            "eval": 1.0,
            "total": 9.0,
        },
        "bytes_per_step": {"features": 0, "embeddings": 2048, "gradients": 1024, "weights": 512, "ids": 0},
        "staleness": {"mean": age / 2, "max": age},
        "memory_peak_bytes": 3 * 2**20,
    }


def logged(step: int, rank: int, step_seconds: float, age: int) -> dict[str, Any]:
    spent = {"step": step_seconds, "compute": step_seconds / 2, "wait": step_seconds / 4, "reduce": step_seconds / 4}
    links = [[0, "forward", 1 - rank, 10, 1024], [0, "backward", 1 - rank, 10, 512], ["weights", "reduce", -1, 0, 256]]
    old = {"mean": min(age, step - 1) / 2, "max": min(age, step - 1)}
    return {"step": step, "seconds": spent, "links": links, "age": old, "hidden": 0.75 if rank else None}


def write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n")


def write_lines(path: Path, lines: list[Any]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def comparison_folder(folder: Path, recipes: dict[str, list[float | str]], *, link: str | None = None) -> Path:
    """For each label, per seed the seconds of a step, or what the run said when it failed."""
    rows = [{"label": label, "recipe": label.split()[0], "folder": label.replace(" ", "-")} for label in recipes]
    for row, seeds in zip(rows, recipes.values(), strict=True):
        for seed, outcome in enumerate(seeds):
            run = folder / row["folder"] / f"seed-{seed}"
            if isinstance(outcome, str):
                run.mkdir(parents=True)
                write(run / "failed.json", {"error": outcome})
                continue
            run_folder(run, recipe=row["recipe"], step_seconds=outcome, workers=2, seed=seed)
            if link:
                content = json.loads((run / "summary.json").read_text())
                write(run / "summary.json", {**content, "link": {"payload_bytes": 1010, "counted_bytes": 1000}})
    config = {"model": {"model": "gcn", "layers": 2, "hidden": 8}, "steps": 4}
    asked = {"graph": "ring", "workers": 2, "link": link, "hosts": 2 if link else None, "config": config}
    seeds = max(len(outcomes) for outcomes in recipes.values())
    write(folder / "compare.json", {**asked, "measured": 9.9e8 if link else None, "recipes": rows, "seeds": seeds})
    return folder
