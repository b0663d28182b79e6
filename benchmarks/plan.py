"""Predicted against measured: `isthmus plan` first, then real runs on this machine, over loopback and narrow links.

    python benchmarks/plan.py [--graph synthetic:reddit@0.02] [--parts 4] [--links "none, 1gbit, 200mbit"]
                              [--recipes "vanilla, exact, bns, pipegcn, psc-gcn, isthmus"] [--steps 30] [--turns 3]

Links need root. Measured is the median of the turns, each the median step of worker 0, with the range of the turns
behind it. Other work on the machine spoils a measurement: the share of the cores that others used stands there too.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from isthmus.engine import TrainConfig
from isthmus.experiments.plan import PlanRequest, plan
from isthmus.graph import load
from isthmus.launch import local
from isthmus.launch.entries import Entry, read_entries
from isthmus.launch.job import Job
from isthmus.nn import ModelConfig
from isthmus.partition import Book, is_parts_folder, partition
from isthmus.testbed import Testbed

SETTLED = 3  # steps until pipelines are full


def busy() -> float:
    """Seconds that all cores together have worked since the machine started."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def own() -> float:
    """Seconds that this process and those it started have worked."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure(entry: Entry, config: TrainConfig, book: Book, link: str | None) -> tuple[float, float, dict[str, Any]]:
    """Share of the cores that others had, the median step of worker 0, and the summary."""
    config = replace(config, recipe=entry.recipe, options=entry.options)
    with tempfile.TemporaryDirectory() as scratch, Testbed(book.num_parts, link) if link else nullcontext() as bed:
        run, begun, before = Path(scratch) / "run", time.perf_counter(), busy() - own()
        job = Job("train", str(book.folder), config, str(run), timeout=80, quiet=True)
        summary = local.start(job, book.num_parts, bed)
        others = (busy() - own() - before) / (time.perf_counter() - begun) / (os.cpu_count() or 1)
        steps = [json.loads(line)["seconds"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    return others, median(steps[SETTLED:]), summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", default="synthetic:reddit@0.02")
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--links", default="none, 1gbit, 200mbit")
    parser.add_argument("--recipes", default="vanilla, exact, bns, pipegcn, psc-gcn, isthmus")
    parser.add_argument("--model", default="sage")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    config = TrainConfig(ModelConfig(options.model, options.layers, options.hidden), steps=options.steps)
    config = replace(config, eval_every=options.steps)
    entries = read_entries(options.recipes)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(options.graph) if is_parts_folder(options.graph) else Path(scratch) / "parts"
        if not is_parts_folder(folder):
            partition(load(options.graph), options.parts, out=folder, objective="vol")
        book = Book.read(folder)
        print(f"{book.name}, {book.num_parts} workers, {options.model} {options.layers} × {options.hidden}")
        print(
            f"{'link':<9}{'recipe':<12}{'predicted':>11}{'measured':>11}{'ratio':>7}{'range':>10}{'others':>8}{'memory':>8}"
        )
        for name in (name.strip() for name in options.links.split(",")):
            link = None if name == "none" else name
            found = plan(PlanRequest(entries, config, link=link, testbed=link is not None), book)
            print(f"{name:<9}{found.gauge}")
            for entry, one in zip(entries, found.recipes, strict=True):
                turns = [measure(entry, config, book, link) for _ in range(options.turns)]
                times, others = sorted(turn[1] for turn in turns), max(turn[0] for turn in turns)
                seconds, memory = median(times), one.memory_per_machine / turns[0][2]["memory_peak_bytes"]
                spread = f"{times[0] * 1e3:.0f}–{times[-1] * 1e3:.0f}"
                print(
                    f"{name:<9}{entry.label:<12}{one.step_seconds * 1e3:8.1f} ms{seconds * 1e3:8.1f} ms"
                    f"{one.step_seconds / seconds:7.2f}{spread:>10}{others:8.0%}{memory:8.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
