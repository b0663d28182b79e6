"""The runs behind the tables. Times come from few steps on narrow links; scores from more steps without them: what is
learnt does not depend on the link."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from isthmus import recipes
from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.errors import WorkerError
from isthmus.experiments.compare import CompareRequest, compare
from isthmus.graph import load
from isthmus.partition import Book, is_parts_folder, partition
from isthmus.partition.links import messages
from isthmus.recipes.parse import Entry, read_entries
from isthmus.report import read_comparison
from isthmus.testbed import written
from papers import link
from papers.table import Figures

Tell = Callable[[str], None]
ROWS = ("features", "embeddings", "gradients", "ids")  # bytes of these kinds are rows, or say which
VANILLA = read_entries("vanilla")
TRIES = 5  # of finding the link; the last is the one that is taken
TURNS = 5  # of an entry on the links, at most
ALIKE = 1.05  # are two turns that are no further apart
SHARE = 0.99  # of vanilla's best score: converged
HOSTS = 2  # whose parts are next to each other, in CDFGNN's table 3
WAYS: dict[str, dict[str, Any]] = {  # of cutting, where the name is not that of a method
    "metis": {"method": "metis", "objective": "vol"},
    "ebv-0": {"cut": "vertex", "method": "ebv", "hosts": HOSTS, "gamma": 0.0},
    "ebv-0.1": {"cut": "vertex", "method": "ebv", "hosts": HOSTS, "gamma": 0.1},
    **{name: {"cut": "vertex", "method": name} for name in ("hep", "ne")},
    "random-edges": {"cut": "vertex", "method": "random"},
    "cover": {"cut": "cover"},
}


def of_cut(book: Book) -> dict[str, float]:
    """The figures of a cut itself: halo, rows that the busiest part sends, replicas, edges of the fullest part."""
    sent, q = messages(book, HOSTS), book.quality
    return {
        "halo": float(sum(part.halo for part in book.parts)),
        "inner": float(max(sent["inner_messages"])),
        "outer": float(max(sent["outer_messages"])),
        "replication": q["replication"],
        "edges": q["balance"]["edges"],
    }


def parts(source: str, cut: str, workers: int, folder: Path) -> Book:
    """The graph's parts in the folder, cut there if they are not yet."""
    if not is_parts_folder(folder):
        graph = load(source)
        partition(graph, workers, out=folder, **WAYS.get(cut, {"method": cut}))
    return Book.read(folder)


# On links


@dataclass(frozen=True)
class Narrow:
    """The links that were chosen, and what `vanilla` does with and without them."""

    rate: float  # bits per second
    compute: float  # seconds of a step without a limit
    step: float  # seconds of a step on the links
    share: float  # of it spent waiting
    busiest: float  # bytes of a step on the busiest link


def calibrate(book: Book, config: TrainConfig, work: Path, tell: Tell, rate: float | None = None) -> Narrow:
    """Links on which `vanilla` waits for `link.AIM` of a step: by its bytes, then by what was seen; or of this rate."""
    free = _vanilla(linked(book, VANILLA, config, None, work / "free", tell))
    tried: list[link.Tried] = []
    tries, rate = (TRIES, link.rate_for(free["busiest"], free["step"])) if rate is None else (1, rate)
    for turn in range(tries):
        rate = link.fitted(tried) if tried else rate
        found = _vanilla(linked(book, VANILLA, config, rate, work / f"try-{turn}", tell))
        tried.append(link.Tried(rate, found["step"], found["wait_share"] / 100))
        tell(f"links of {written(rate)}: vanilla waits for {tried[-1].waiting:.0%} of {tried[-1].step * 1e3:.0f} ms")
    return Narrow(rate, free["step"], tried[-1].step, tried[-1].waiting, free["busiest"])


def _vanilla(found: dict[str, Figures]) -> Figures:
    if "vanilla" not in found:
        raise WorkerError("vanilla failed, and without it there is nothing to compare with")
    return found["vanilla"]


def fastest(
    book: Book, entries: Sequence[Entry], config: TrainConfig, rate: float, folder: Path, tell: Tell
) -> dict[str, Figures]:
    """Means of each entry's two fastest turns (the fastest, if they differ), by label; who failed is missing.

    All entries take turns until the two fastest of each are alike: what else the machine does makes steps slower, for
    seconds or minutes, and never faster. Of one turn, the parts of a step may differ more than its whole.
    """
    turns: dict[str, list[Figures]] = {}
    left = list(entries)
    for turn in range(TURNS):
        found = linked(book, left, config, rate, folder / f"turn-{turn}", tell)
        for label, figures in found.items():
            turns.setdefault(label, []).append(figures)
        left = [entry for entry in left if entry.label in found and not settled(turns[entry.label])]
        if not left:
            break
    return {label: mean(alike(found)) for label, found in turns.items()}


def settled(turns: Sequence[Figures]) -> bool:
    """Whether the two fastest are alike."""
    return len(alike(turns)) == 2


def alike(turns: Sequence[Figures]) -> list[Figures]:
    """The fastest, and the next if it is as fast."""
    first, *others = sorted(turns, key=lambda figures: figures["step"])
    return [first, *(other for other in others[:1] if other["step"] <= ALIKE * first["step"])]


def mean(turns: Sequence[Figures]) -> Figures:
    return {name: fmean(turn[name] for turn in turns) for name in turns[0]}


def linked(
    book: Book, entries: Sequence[Entry], config: TrainConfig, rate: float | None, folder: Path, tell: Tell
) -> dict[str, Figures]:
    """Figures of each entry, by label; those that failed are missing, and `tell` has said why."""
    config = replace(config, eval_every=config.steps)
    narrow = None if rate is None else written(rate)
    plan = CompareRequest(entries, config, seeds=1, workers=book.num_parts, link=narrow, threads=1)
    compare(plan, str(book.folder), folder, None, tell=tell)
    runs = {one.label: run for one in read_comparison(folder).contenders for run in one.runs.values()}
    return {label: times(run.folder) | _noted(run.summary or {}) for label, run in runs.items()}


def times(run: Path) -> dict[str, float]:
    """Seconds of a step by purpose, medians and means; the first step, which also prepares, is left out.

    Medians of a worker's steps, then the mean of the workers: what a slow moment of the machine does not move. Means of
    all steps, for recipes whose steps differ.
    """
    workers = [
        [json.loads(line) for line in file.read_text().splitlines()][1:]
        for file in sorted(run.glob("worker-*.jsonl"), key=lambda file: int(file.stem.removeprefix("worker-")))
    ]
    purposes = ("step", "compute", "wait", "reduce")
    seconds = [[line["seconds"] for line in lines] for lines in workers]
    mean = {name: fmean(each[name] for lines in seconds for each in lines) for name in purposes}
    return {
        **{name: fmean(median(each[name] for each in lines) for lines in seconds) for name in purposes},
        **{f"mean_{name}": figure for name, figure in mean.items()},
        "wait_share": 100 * (mean["wait"] + mean["reduce"]) / mean["step"],
        "sample_share": 100 * fmean(each["sample"] for lines in seconds for each in lines) / mean["step"],
        "busiest": busiest([[line["links"] for line in lines] for lines in workers]),
    }


def steps_per_epoch(book: Book, label: str) -> int:
    """The steps in which an entry passes over all training nodes; one on the full graph."""
    (entry,) = read_entries(label)
    batches = recipes.find(entry.recipe).policy(entry.options).batches
    return 1 if batches is None else batches.steps_per_epoch(book.nodes, book.train[0], None)


def busiest(links: Sequence[Sequence[Sequence[Any]]]) -> float:
    """The most bytes that a worker sends or receives in a mean step; links[worker][step] as in worker-K.jsonl.

    Of sums over all workers (peer -1) a worker receives what it sends.
    """
    sent, received = [0.0] * len(links), [0.0] * len(links)
    for rank, steps in enumerate(links):
        for *_, peer, _, size in (one for step in steps for one in step):
            sent[rank] += size / len(steps)
            received[rank if peer < 0 else peer] += size / len(steps)
    return max(*sent, *received)


def _noted(summary: dict[str, Any]) -> dict[str, float]:
    found = {"memory": summary["memory_peak_bytes"] - summary["workers"] * _idle()}
    if summary.get("hit_rate") is not None:
        found["hit_rate"] = 100 * summary["hit_rate"]
    return found


_IDLE: list[int] = []


def _idle() -> int:
    """The peak memory of a worker that has only been started, in bytes."""
    if not _IDLE:
        code = "import isthmus.launch.job; from isthmus.engine import record; print(record.memory_peak_bytes())"
        said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
        _IDLE.append(int(said.stdout))
    return _IDLE[0]


# Without links


@dataclass(frozen=True)
class Learnt:
    figures: Figures
    curve: list[tuple[int, float]]  # (step, validation score)


def learn(book: Book, entry: Entry, config: TrainConfig) -> Learnt:
    """A whole training, its workers threads of this process."""
    policy = recipes.find(entry.recipe).policy(entry.options)
    curve: list[tuple[int, float]] = []

    def note(line: dict[str, Any]) -> None:
        if "val" in line:
            curve.append((line["step"], line["val"]))

    def work(transport: Any) -> dict[str, Any]:
        watch = note if transport.rank == 0 else None
        return train(book, config, transport, policy=policy, watch=watch).summary

    summary = Hub(book.num_parts).run(work)[0]
    sent = sum(summary["bytes_per_step"][kind] for kind in ROWS)
    return Learnt({"score": 100 * summary["test"]["score"], "sent": sent}, curve)


def steps_to(curve: Sequence[tuple[int, float]], base: Sequence[tuple[int, float]]) -> int | None:
    """The first step whose score is `SHARE` of the base's best; None if there is none."""
    target = SHARE * max(score for _, score in base)
    return next((step for step, score in curve if score >= target), None)
