"""The runs behind the tables. Times come from few steps on narrow links; scores from more steps without them: what is
learnt does not depend on the link."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
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
from papers.table import THIRDS, Figures

Tell = Callable[[str], None]
ROWS = ("features", "embeddings", "gradients", "ids")  # bytes of these kinds are rows, or say which
VANILLA = read_entries("vanilla")
TRIES = 5  # of finding the link; the last is the one that is taken
TURNS = 5  # of an entry on the links, at most
ALIKE = 1.05  # are two turns that are no further apart
SHARE = 0.99  # of vanilla's best score: converged
HOSTS = 2  # whose parts are next to each other, in CDFGNN's table 3
_EBV = {"cut": "vertex", "method": "ebv", "hosts": HOSTS}
WAYS: dict[str, dict[str, Any]] = {  # of cutting, where the name is not that of a method
    "metis": {"method": "metis", "objective": "vol"},
    "ebv-0": _EBV | {"gamma": 0.0},
    "ebv-0.1": _EBV | {"gamma": 0.1},
    "ebv-as-published": _EBV | {"gamma": 0.1, "host_score": "as-published"},
    **{name: {"cut": "vertex", "method": name} for name in ("hep", "ne")},
    "random-edges": {"cut": "vertex", "method": "random"},
    "cover": {"cut": "cover"},
}


def is_vertex_cut(cut: str) -> bool:
    return bool(WAYS.get(cut, {}).get("cut") == "vertex")


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
class Setting:
    """The parts, the training and the number of hosts of runs over links."""

    book: Book
    config: TrainConfig
    hosts: int | None = None  # None: one for each worker


@dataclass(frozen=True)
class Narrow:
    """The links that were chosen, and what `vanilla` does with and without them."""

    rate: float  # bits per second
    compute: float  # seconds of a step without a limit
    step: float  # seconds of a step on the links
    share: float  # of it spent waiting
    busiest: float  # bytes of a step on the busiest link


def calibrate(setting: Setting, work: Path, tell: Tell, rate: float | None = None) -> Narrow:
    """Links on which `vanilla` waits for `link.AIM` of a step: by its bytes, then by what was seen; or of this rate."""
    free = _vanilla(linked(setting, VANILLA, None, work / "free", tell))
    tried: list[link.Tried] = []
    tries, rate = (TRIES, link.rate_for(free["busiest"], free["step"])) if rate is None else (1, rate)
    for turn in range(tries):
        rate = link.fitted(tried) if tried else rate
        found = _vanilla(linked(setting, VANILLA, rate, work / f"try-{turn}", tell))
        tried.append(link.Tried(rate, found["step"], found["wait_share"] / 100))
        tell(f"links of {written(rate)}: vanilla waits for {tried[-1].waiting:.0%} of {tried[-1].step * 1e3:.0f} ms")
    return Narrow(rate, free["step"], tried[-1].step, tried[-1].waiting, free["busiest"])


def _vanilla(found: dict[str, Figures]) -> Figures:
    if "vanilla" not in found:
        raise WorkerError("vanilla failed, and without it there is nothing to compare with")
    return found["vanilla"]


def fastest(setting: Setting, entries: Sequence[Entry], rate: float, folder: Path, tell: Tell) -> dict[str, Figures]:
    """Means of each entry's two fastest turns (the fastest, if they differ), by label; who failed is missing.

    All entries take turns until the two fastest of each are alike: what else the machine does makes steps slower, for
    seconds or minutes, and never faster. Of one turn, the parts of a step may differ more than its whole.
    """
    turns: dict[str, list[Figures]] = {}
    left = list(entries)
    for turn in range(TURNS):
        found = linked(setting, left, rate, folder / f"turn-{turn}", tell)
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
    setting: Setting, entries: Sequence[Entry], rate: float | None, folder: Path, tell: Tell
) -> dict[str, Figures]:
    """Figures of each entry, by label; those that failed are missing, and `tell` has said why."""
    book, config = setting.book, replace(setting.config, eval_every=setting.config.steps)
    limits = {} if rate is None else {"link": written(rate), "hosts": setting.hosts}
    plan = CompareRequest(entries, config, seeds=1, workers=book.num_parts, threads=1, **limits)
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
    if (far := summary.get("between_hosts")) is not None:
        found |= {"outer_rows": far["rows_per_step"], "outer_bytes": far["bytes_per_step"]}
        found["inner_rows"] = summary["rows"]["sent"] - far["rows_per_step"]
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
    caches: list[dict[str, float]] = []

    def note(line: dict[str, Any]) -> None:
        if "val" in line:
            curve.append((line["step"], line["val"]))
        if "cache" in line:
            caches.append({"epsilon": line["cache"]["epsilon"], **line["cache"]["sent"]})

    def work(transport: Any) -> dict[str, Any]:
        watch = note if transport.rank == 0 else None
        return train(book, config, transport, policy=policy, watch=watch).summary

    summary = Hub(book.num_parts).run(work)[0]
    sent = sum(summary["bytes_per_step"][kind] for kind in ROWS)
    figures = {"score": 100 * summary["test"]["score"], "sent": sent, "rows": float(summary["rows"]["sent"])}
    return Learnt({**figures, **thirds(caches)}, curve)


def thirds(caches: Sequence[Mapping[str, float | None]]) -> Figures:
    """The threshold of a cache and the share of rows that every channel sent, means of each third of a training."""
    found = {}
    for place, part in enumerate(THIRDS):
        lines = caches[place * len(caches) // 3 : (place + 1) * len(caches) // 3]
        for name in dict.fromkeys(name for line in lines for name in line):
            known = [value for line in lines if (value := line.get(name)) is not None]
            if known:
                found[f"{name}, {part} third"] = fmean(known)
    return found


def steps_to(curve: Sequence[tuple[int, float]], base: Sequence[tuple[int, float]]) -> int | None:
    """The first step whose score is `SHARE` of the base's best; None if there is none."""
    target = SHARE * max(score for _, score in base)
    return next((step for step, score in curve if score >= target), None)
