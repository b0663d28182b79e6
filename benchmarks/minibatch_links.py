"""Mini-batches over narrow links: working ahead, caches, cuts, joint batches (needs root).

    PYTHONPATH=benchmarks python benchmarks/minibatch_links.py [--links 1gbit,200mbit] [--only ahead,cache,cuts]

SAGE of three layers, fanout 15,10,5, one thread a worker, each on a host of its own; 500 seed nodes for each. Working
ahead is tried with the widths --hidden: it can give most, twice the speed, where transfer and computing take as long.
Rows are the feature rows that a worker sends in a mean step; those that fill a cache at the start are left out.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from papers.measure import Setting, linked

from isthmus.engine import TrainConfig
from isthmus.graph import load
from isthmus.nn import ModelConfig
from isthmus.partition import Book, partition
from isthmus.recipes.parse import Entry, read_entries
from isthmus.report import read_comparison
from isthmus.testbed import bits_per_second

PLAIN = read_entries("distdgl")
AHEAD = read_entries("distdgl ahead=0; distdgl")
CACHES = read_entries("distdgl; " + "; ".join(f"distdgl cache={by} cache_rows=0.2" for by in ("degree", "vip", "list")))
Found = dict[str, tuple[float, float]]


class Bench:
    """Runs entries over links on parts that it cuts once."""

    def __init__(self, asked: argparse.Namespace, folder: Path):
        self.asked, self.folder, self.count = asked, folder, 0

    def parts(self, count: int, method: str = "metis") -> Book:
        out = self.folder / f"{self.asked.graph.replace(':', '-')}-{count}-{method}"
        if not out.exists():
            partition(load(self.asked.graph), count, out=out, method=method)
        return Book.read(out)

    def run(self, book: Book, entries: Sequence[Entry], link: str, hidden: int, batch: str = "apart") -> Found:
        """Return the seconds of a step and the feature rows that a worker sends in it, by entry."""
        self.count += 1
        out, shape = self.folder / f"runs-{self.count}", ModelConfig("sage", layers=3, hidden=hidden, dropout=0.0)
        size = 500 * book.num_parts
        config = TrainConfig(shape, steps=self.asked.steps, batch_size=size, fanout="15,10,5", batch=batch)
        seconds = linked(Setting(book, config), entries, bits_per_second(link), out, print)
        runs = {one.label: run.folder for one in read_comparison(out).contenders for run in one.runs.values()}
        return {label: (seconds[label]["step"], feature_rows(runs[label])) for label in seconds}


def feature_rows(run: Path) -> float:
    """Return the feature rows that a worker sends in a mean step of a run."""
    sent = []
    for file in run.glob("worker-*.jsonl"):
        steps = [json.loads(line) for line in file.read_text().splitlines()][1:]
        sent.append(fmean(sum(rows for site, *_, rows, _ in step["links"] if site == "features") for step in steps))
    return fmean(sent)


def show(link: str, what: str, found: Found) -> None:
    """Print a row for each entry, against the first."""
    base, most = next(iter(found.values()))
    for label, (seconds, rows) in found.items():
        few = f"{rows / most:.2f}" if most else ""
        print(f"| {link} | {what} | {label} | {seconds:.3f} | {base / seconds:.2f} | {rows:,.0f} | {few} |", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--graph", default="synthetic:products@0.05")
    options.add_argument("--links", default="1gbit,200mbit")
    options.add_argument("--hidden", default="128,256,512")
    options.add_argument("--steps", type=int, default=12)
    options.add_argument("--only", default="ahead,cache,cuts,together")
    options.add_argument("--keep", type=Path, help="a folder for parts and runs")
    asked = options.parse_args()
    only, widths = asked.only.split(","), [int(width) for width in asked.hidden.split(",")]
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(asked, asked.keep or Path(scratch))
        print("| link | | | s a step | × first | rows | × first |\n|---|---|---|---|---|---|---|")
        for link in asked.links.split(","):
            for width in widths if "ahead" in only else ():
                show(link, f"working ahead, width {width}", bench.run(bench.parts(2), AHEAD, link, width))
            if "cache" in only:
                show(link, "caches", bench.run(bench.parts(2), CACHES, link, widths[0]))
            if "cuts" in only:
                cuts = {by: bench.run(bench.parts(2, by), PLAIN, link, widths[0]) for by in ("random", "metis")}
                show(link, "cuts", {by: found["distdgl"] for by, found in cuts.items()})
            if "together" in only:
                ways = {way: bench.run(bench.parts(4), PLAIN, link, widths[0], way) for way in ("apart", "together")}
                show(link, "4 workers", {way: found["distdgl"] for way, found in ways.items()})


if __name__ == "__main__":
    main()
