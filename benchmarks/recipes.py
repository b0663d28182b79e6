"""Every recipe on the same parts: test score, bytes per step against vanilla's and against theory, age of rows.

    python benchmarks/recipes.py GRAPH [--workers 4] [--seeds 3] [--steps 150] [--recipes "bns rate=0.1;pipegcn"]

GRAPH is anything that `isthmus train` takes. Workers are threads of this process: scores and bytes are those of any
other way of running them; for times see overhead.py.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from isthmus import recipes
from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.graph import load
from isthmus.nn import ModelConfig
from isthmus.partition import Book, partition

ROWS = ("features", "embeddings", "gradients", "ids")
DEFAULT = (
    "exact;vanilla;vanilla bits=8;bns rate=0.1;pipegcn;pipegcn smooth_features=0.95 smooth_gradients=0.95;"
    "sancus-e;sancus-a;sancus-h bound=0.02;skip-g"
)


def read(row: str) -> tuple[str, dict[str, Any]]:
    """A recipe and its options from ``name option=value …``."""
    name, *pairs = row.split()
    options = {}
    for pair in pairs:
        option, _, value = pair.partition("=")
        try:
            options[option] = json.loads(value)
        except ValueError:
            options[option] = value
    return name, options


def run(book: Book, row: str, config: TrainConfig) -> dict[str, Any]:
    name, options = read(row)
    policy = recipes.find(name).policy(options)
    return Hub(book.num_parts).run(lambda transport: train(book, config, transport, policy=policy))[0].summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--model", default="sage")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--recipes", default=DEFAULT, help="rows of the table, separated by ;")
    options = parser.parse_args()
    torch.set_num_threads(1)
    shape = ModelConfig(options.model, options.layers, options.hidden)
    with tempfile.TemporaryDirectory() as scratch:
        book = partition(load(options.graph), options.workers, out=Path(scratch) / "parts", objective="vol")
        print(f"{options.graph}, {options.workers} workers, {shape.model} {shape.layers} × {shape.hidden}", flush=True)
        print(f"{'recipe':<58} {'test':>14} {'bytes per step':>14} {'× vanilla':>9} {'age':>5}")
        unit = None
        for row in options.recipes.split(";"):
            found = []
            for seed in range(options.seeds):
                config = TrainConfig(shape, steps=options.steps, eval_every=5, lr=options.lr, seed=seed)
                found.append(run(book, row, config))
            scores = [100 * summary["test"]["score"] for summary in found]
            size = mean(sum(summary["bytes_per_step"][kind] for kind in ROWS) for summary in found)
            unit = size if row == "vanilla" else unit
            share = f"{size / unit:9.3f}" if unit else f"{'':>9}"
            spread = stdev(scores) if len(scores) > 1 else 0.0
            age = mean(summary["staleness"]["mean"] for summary in found)
            print(f"{row:<58} {mean(scores):7.2f} ± {spread:4.2f} {size:14,.0f} {share} {age:5.2f}", flush=True)


if __name__ == "__main__":
    main()
