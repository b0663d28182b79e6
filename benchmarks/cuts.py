"""The step of `exact` under two cuts in turns, over links on which `vanilla` waits for 75 % (needs root), or without.

    PYTHONPATH=benchmarks python benchmarks/cuts.py GRAPH [--pair cover|relay] [--loopback] [--workers 4] [--steps 8]
                                                    [--turns 3] [--parts FOLDER] [--recipe exact]

cover: edge-cut against what `exact` does by itself (the cover cut, where it pays), one worker per host. relay: two
hosts, every worker sends to every other against rows that cross between hosts once. A ratio above 1 says that the
second is faster; the median of all turns is printed.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from papers import link, measure
from papers.measure import times

from isthmus.engine import TrainConfig
from isthmus.experiments.compare import CompareRequest, compare
from isthmus.nn import ModelConfig
from isthmus.partition import Book
from isthmus.recipes.parse import read_entries
from isthmus.report import read_comparison
from isthmus.testbed import written

VANILLA = "vanilla"
PAIRS = {"cover": ({"cut": "edge"}, {"cut": None}), "relay": ({"hosts": 1}, {"hosts": None})}


@dataclass
class Bench:
    """Runs of one graph on hosts of one kind."""

    book: Book
    hosts: int
    work: Path
    made: int = 0

    def step(self, recipe: str, config: TrainConfig, rate: float | None) -> dict[str, float]:
        """The figures of one run: median seconds of a step, share of waiting, bytes on the busiest link."""
        self.made += 1
        limits = {} if rate is None else {"link": written(rate), "hosts": self.hosts}
        asked = CompareRequest(read_entries(recipe), config, 1, self.book.num_parts, threads=1, **limits)
        compare(asked, str(self.book.folder), self.work / str(self.made), None, tell=lambda _: None)
        (one,) = read_comparison(self.work / str(self.made)).contenders
        (run,) = one.runs.values()
        return times(run.folder)

    def rate(self, config: TrainConfig) -> float:
        """Links on which vanilla waits for three quarters of a step."""
        free = self.step(VANILLA, config, None)
        workers = self.book.num_parts / self.hosts
        outer = (1 - 1 / self.hosts) / (1 - 1 / self.book.num_parts)
        rate = link.rate_for(free["busiest"] * workers * outer, free["step"])
        tried: list[link.Tried] = []
        for _ in range(2):
            seen = self.step(VANILLA, config, rate)
            tried.append(link.Tried(rate, seen["step"], seen["wait_share"] / 100))
            print(f"{written(rate)}: vanilla waits for {seen['wait_share']:.0f} % of {seen['step']:.3f} s", flush=True)
            if abs(tried[-1].waiting - link.AIM) < 0.05:
                break
            rate = link.fitted(tried)
        return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph")
    parser.add_argument("--pair", choices=PAIRS, default="cover")
    parser.add_argument("--loopback", action="store_true", help="no links: all workers on this machine")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--recipe", default="exact")
    parser.add_argument("--parts", type=Path, help="folder of parts, cut already or to be kept there")
    asked = parser.parse_args()
    config = TrainConfig(ModelConfig("sage", layers=3, hidden=128), steps=asked.steps, eval_every=asked.steps)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        book = measure.parts(asked.graph, "metis", asked.workers, asked.parts or work / "parts")
        bench = Bench(book, 2 if asked.pair == "relay" else asked.workers, work)
        rate, ratios = None if asked.loopback else bench.rate(config), []
        where = "loopback" if rate is None else written(rate)
        for _ in range(asked.turns):
            one, other = (bench.step(asked.recipe, replace(config, **way), rate) for way in PAIRS[asked.pair])
            ratios.append(one["step"] / other["step"])
            seconds = f"without {one['step']:.4f} s, with {other['step']:.4f} s"
            print(f"{asked.graph}, {where}, {asked.pair}: {seconds}, {ratios[-1]:.2f} x", flush=True)
        print(f"{asked.graph}: {asked.recipe} with {asked.pair} {median(ratios):.2f} x", flush=True)


if __name__ == "__main__":
    main()
