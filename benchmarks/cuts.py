"""The step of `exact` under cover and edge-cut, over links on which `vanilla` waits for 75 % (needs root).

    PYTHONPATH=benchmarks python benchmarks/cuts.py GRAPH [--workers 4] [--steps 8] [--turns 3] [--parts FOLDER]

The two take turns on the same links. A ratio above 1 says that the cover is faster.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median

from papers import link, measure
from papers.measure import linked

from isthmus.engine import TrainConfig
from isthmus.nn import ModelConfig
from isthmus.recipes.parse import read_entries
from isthmus.testbed import written

EXACT, VANILLA = read_entries("exact"), read_entries("vanilla")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--parts", type=Path, help="folder of parts, cut already or to be kept there")
    asked = parser.parse_args()
    config = TrainConfig(ModelConfig("sage", layers=3, hidden=128), steps=asked.steps, eval_every=asked.steps)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        book = measure.parts(asked.graph, "metis", asked.workers, asked.parts or work / "parts")
        free = linked(book, VANILLA, config, None, work / "free", lambda _: None)["vanilla"]
        rate, ratios = link.rate_for(free["busiest"], free["step"]), []
        for turn in range(asked.turns):
            edge, cover = (
                linked(book, EXACT, replace(config, cut=cut), rate, work / f"{cut}-{turn}", lambda _: None)["exact"]
                for cut in ("edge", "cover")
            )
            ratios.append(edge["step"] / cover["step"])
            seconds = f"edge {edge['step']:.3f} s, cover {cover['step']:.3f} s"
            print(f"{written(rate)}: {seconds}, {ratios[-1]:.2f} x", flush=True)
        print(f"{asked.graph}: cover {median(ratios):.2f} x the edge-cut", flush=True)


if __name__ == "__main__":
    main()
