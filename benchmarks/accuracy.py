"""Test accuracy on real graphs against published figures: mean of five seeds, three workers.

    python benchmarks/accuracy.py FOLDER [--graphs cora,pubmed] [--seeds 5] [--workers 3] [--rows-dtype bf16]

FOLDER holds NAME.npz files in the documented form. Workers are threads of this process: the numbers are those of any
other way of running them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev

import torch

from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.graph import load
from isthmus.nn import ModelConfig
from isthmus.partition import partition


@dataclass(frozen=True)
class Setting:
    """How a graph is trained, what the literature reports, and what must be reached here."""

    target: float
    published: str
    train: dict = field(default_factory=dict)
    model: dict = field(default_factory=dict)
    splits: bool = False
    """Seed k trains split k, as the published mean over random splits does."""

    def config(self, seed: int, rows_dtype: str | None) -> TrainConfig:
        shape = ModelConfig(**{"hidden": 64, "dropout": 0.5, "input_dropout": 0.5, **self.model})
        asked = {"steps": 200, "eval_every": 2, "lr": 0.01, "weight_decay": 5e-4, **self.train}
        split = seed if self.splits else 0
        return TrainConfig(model=shape, seed=seed, split=split, rows_dtype=rows_dtype, **asked)


SETTINGS = {
    "cora": Setting(81.0, "81.5", {"features": "rows"}),
    "citeseer": Setting(70.0, "70.3", {"features": "rows"}),
    "pubmed": Setting(78.8, "79.0", {"features": "rows"}),
    "amazon-photo": Setting(90.0, "91.2 ± 1.2", splits=True),
    "coauthor-cs": Setting(91.0, "91.1 ± 0.5", {"features": "rows"}, splits=True),
    "debian-deps": Setting(
        79.0,
        "none: a new task",
        {"steps": 150, "eval_every": 10, "weight_decay": 0.0},
        {"model": "sage", "hidden": 128, "input_dropout": 0.0},
    ),
}


def scores(name: str, folder: Path, seeds: int, workers: int, rows_dtype: str | None = None) -> list[float]:
    """Test accuracy of each seed, in per cent."""
    setting = SETTINGS[name]
    with tempfile.TemporaryDirectory() as scratch:
        book = partition(load(str(folder / f"{name}.npz")), workers, out=Path(scratch) / "parts")
        found = []
        for seed in range(seeds):
            config = setting.config(seed, rows_dtype)
            results = Hub(workers).run(lambda transport, config=config: train(book, config, transport))
            found.append(100 * results[0].summary["test"]["score"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--graphs", default=",".join(SETTINGS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--rows-dtype")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.graphs.split(","):
        begun = time.perf_counter()
        found = scores(name, options.folder, options.seeds, options.workers, options.rows_dtype)
        spread = stdev(found) if len(found) > 1 else 0.0
        setting, seconds = SETTINGS[name], time.perf_counter() - begun
        print(
            f"{name:<14} {mean(found):.2f} ± {spread:.2f}   at least {setting.target}, published {setting.published}   "
            f"({options.workers} workers, {options.seeds} seeds, {seconds:.0f} s)",
            flush=True,
        )


if __name__ == "__main__":
    main()
