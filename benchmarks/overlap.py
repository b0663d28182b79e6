"""What overlapping transfers with computing gives, against what it can give at most (needs root).

    PYTHONPATH=benchmarks python benchmarks/overlap.py [--graph synthetic:reddit@0.1] [--parts FOLDER]
        [--workers 4] [--steps 12] [--turns 3] [--shares 0.5,0.65,0.75]

C is a step of `vanilla` without a limit on the links: all computing, by workers that compute at the same time, as those
of a pipeline do. M is what a narrow link adds to it. `pipegcn savings=as-published` computes and sends the same, and
can be (C + M) / max(C, M) times as fast at most; `pipegcn` as it comes also sends less. The three take turns.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median

from papers import link, measure
from papers.measure import Setting, linked

from isthmus.engine import TrainConfig
from isthmus.nn import ModelConfig
from isthmus.partition import Book
from isthmus.recipes.parse import read_entries
from isthmus.testbed import written

ENTRIES = read_entries("vanilla; pipegcn savings=as-published; pipegcn")


def steps(book: Book, config: TrainConfig, rate: float | None, turns: int, work: Path) -> tuple[list[float], float]:
    """Seconds of a step of each entry, medians over the turns; and the bytes of vanilla's busiest link."""
    setting = Setting(book, config)
    found = [linked(setting, ENTRIES, rate, work / f"{rate}-{turn}", lambda _: None) for turn in range(turns)]
    medians = [median(each[entry.label]["step"] for each in found) for entry in ENTRIES]
    return medians, found[0]["vanilla"]["busiest"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", default="synthetic:reddit@0.1")
    parser.add_argument("--parts", type=Path, help="folder of parts, cut already or to be kept there")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--shares", default="0.5,0.65,0.75")
    asked = parser.parse_args()
    config = TrainConfig(ModelConfig("sage", layers=3, hidden=128), steps=asked.steps)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        book = measure.parts(asked.graph, "metis", asked.workers, asked.parts or work / "parts")
        (compute, *free), busiest = steps(book, config, None, asked.turns, work)
        print(f"no limit: vanilla {compute:.3f} s, pipegcn {free[0]:.3f} s a step, as it comes {free[1]:.3f} s")
        for share in map(float, asked.shares.split(",")):
            rate = link.rate_for(busiest, compute, share)
            (both, pipelined, saving), _ = steps(book, config, rate, asked.turns, work)
            transfer = both - compute
            bound, reached = both / max(compute, transfer), both / pipelined
            print(
                f"{written(rate)}: M/(C+M) {transfer / both:.0%}, vanilla {both:.3f} s, pipegcn {pipelined:.3f} s: "
                f"{reached:.2f} x of at most {bound:.2f} x, {reached / bound:.0%}; as it comes {both / saving:.2f} x",
                flush=True,
            )


if __name__ == "__main__":
    main()
