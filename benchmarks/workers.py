"""Two workers with one thread each against one worker with two threads, runs taking turns.

python benchmarks/workers.py [--graph synthetic:reddit@0.2] [--steps 10] [--turns 5]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median

from isthmus.engine import TrainConfig
from isthmus.graph import load
from isthmus.launch.job import Job
from isthmus.launch.local import start
from isthmus.nn import ModelConfig
from isthmus.partition import partition


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", default="synthetic:reddit@0.2")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    config = TrainConfig(model=ModelConfig("sage", 3, 128), steps=options.steps, eval_every=options.steps)
    with tempfile.TemporaryDirectory() as scratch:
        graph = load(options.graph)
        for count in (1, 2):
            partition(graph, count, out=Path(scratch) / str(count))
        del graph
        seconds: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(options.turns):
            for count in (1, 2):
                job = Job("train", f"{scratch}/{count}", config, threads=2 // count, quiet=True)
                summary = start(job, count)
                seconds[count].append(summary["step_seconds"]["median"])
                share = {name: summary["seconds"][name] / options.steps for name in ("compute", "wait", "reduce")}
                split = ", ".join(f"{name} {value:.3f}" for name, value in share.items())
                print(f"{count} × {2 // count} thread(s): {seconds[count][-1]:.3f} s per step ({split})", flush=True)
    ratio = median(one / two for one, two in zip(seconds[1], seconds[2], strict=True))  # turn by turn: machines drift
    print(f"two workers reach {ratio:.0%} of the speed of one worker with two threads")


if __name__ == "__main__":
    main()
