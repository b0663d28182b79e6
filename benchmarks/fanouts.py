"""Test accuracy of mini-batches over fanouts, beside full-graph training with the same model.

    python benchmarks/fanouts.py SOURCE… [--fanout 15,10,5 --fanout 5,5,5] [--steps 150] [--epochs 10] [--lr 0.003]

A 3-layer SAGE of width 128, dropout 0.5, Adam; the test score at the best validation score, mean over seeds. Full-graph
training is `exact` with ``--steps`` steps; mini-batches are `distdgl` with 1000 seed nodes, ``--epochs`` epochs, and at
least as many steps. One worker: any number of them gives the same figures.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import mean

import torch

from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.graph import load
from isthmus.nn import ModelConfig
from isthmus.partition import Book, partition
from isthmus.recipes import RECIPES

MODEL = ModelConfig("sage", layers=3, hidden=128, dropout=0.5)


def scores(book: Book, recipe: str, precision: str, seeds: int, **asked) -> list[float]:
    """Return the test score of each seed, in per cent."""
    policy, found = RECIPES[recipe].policy({"precision": precision}), []
    for seed in range(seeds):
        config = TrainConfig(model=MODEL, seed=seed, **asked)
        [result] = Hub(1).run(lambda transport, config=config: train(book, config, transport, policy=policy))
        found.append(100 * result.summary["test"]["score"])
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("sources", nargs="+", metavar="SOURCE")
    options.add_argument("--fanout", action="append", metavar="15,10,5")
    options.add_argument("--steps", type=int, default=150)
    options.add_argument("--epochs", type=int, default=10)
    options.add_argument("--lr", type=float, default=0.003, help="of mini-batches; 0.01 over the full graph")
    options.add_argument("--seeds", type=int, default=2)
    options.add_argument("--features", default="raw")
    options.add_argument("--precision", default="fp32")
    asked = options.parse_args()
    torch.set_num_threads(1)
    print("| graph | | test % | against full graph | per seed | s |\n|---|---|---|---|---|---|")
    for source in asked.sources:
        with tempfile.TemporaryDirectory() as folder:
            book = partition(load(source), 1, out=Path(folder) / "parts", order="metis")
            epoch = -(-book.train[0] // 1000)
            ways = {"full graph": {"recipe": "exact", "steps": asked.steps, "eval_every": 5, "lr": 0.01}}
            for fanout in asked.fanout or ["15,10,5"]:
                steps = max(asked.epochs * epoch, asked.steps)
                every = max(min(epoch, steps // 10), 5)
                drawn = {"recipe": "distdgl", "fanout": fanout, "lr": asked.lr}
                ways[fanout] = {**drawn, "steps": steps, "eval_every": every}
            exact = 0.0
            for name, way in ways.items():
                begun = time.perf_counter()
                found = scores(book, precision=asked.precision, seeds=asked.seeds, features=asked.features, **way)
                exact = exact or mean(found)
                each, seconds = ", ".join(f"{score:.2f}" for score in found), time.perf_counter() - begun
                row = f"{Path(source).stem} | {name} | {mean(found):.2f} | {mean(found) - exact:+.2f}"
                print(f"| {row} | {each} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
