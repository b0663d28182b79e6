"""What a recipe's own work costs where the link costs nothing: its step against vanilla's, turn by turn.

    python benchmarks/overhead.py [--graph synthetic:reddit@0.1] [--workers 2] [--turns 7] [--steps 4]
                                  [--recipes "bns rate=0.1 savings=as-published;…"]

Recipes run with savings=as-published, so that they compute and exchange the same layers as vanilla does. Workers are
processes over the loopback interface, one thread each; in every turn each recipe does a few steps. GRAPH may be a parts
folder. "unwatched pipegcn" is that recipe without the measurement of its rows' error (docs/guard.md).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from recipes import read

from isthmus import recipes
from isthmus.comm import Processes, Transport, Where
from isthmus.engine import TrainConfig
from isthmus.engine.learning import OPTIMIZERS
from isthmus.engine.prepare import Views
from isthmus.engine.step import train_step
from isthmus.graph import load
from isthmus.nn import ModelConfig
from isthmus.partition import Book, is_parts_folder, partition

DEFAULT = (
    "vanilla;bns rate=1.0 savings=as-published;bns rate=0.5 savings=as-published;bns rate=0.1 savings=as-published;"
    "pipegcn savings=as-published;"
    "pipegcn smooth_features=0.95 smooth_gradients=0.95 savings=as-published;"
    "sancus-e savings=as-published;sancus-h bound=0.02 savings=as-published;skip-g savings=as-published;"
    "vanilla bits=8;vanilla bits=4;vanilla bits=bf16;exact"
)
UNWATCHED = "unwatched "


class Trainer:
    """One recipe on this worker, ready to do a step at a time."""

    def __init__(self, row: str, book: Book, config: TrainConfig, transport: Transport):
        name, options = read(row.removeprefix(UNWATCHED))
        self.transport, self.labelled, self.at = transport, book.train[0], 0
        self.view = Views.of(book, config, recipes.find(name).policy(options), transport).train
        if row.startswith(UNWATCHED):
            self.view.graph.runtime.watch.sees = lambda pass_: False
        self.model = config.model.build(book.features, book.classes, config.seed)
        self.optimizer = OPTIMIZERS[config.optimizer](self.model.parameters(), lr=config.lr)

    def seconds(self, steps: int) -> float:
        """Of one step, the mean of some; all workers begin together, and nothing is left under way."""
        self.transport.all_reduce(torch.zeros(1), Where("turn", "reduce", self.at))
        begun = time.perf_counter()
        for _ in range(steps):
            train_step(self.model, self.optimizer, self.view, self.labelled, self.at)
            self.at += 1
        taken = (time.perf_counter() - begun) / steps
        self.view.graph.runtime.drain()
        return taken


def work(rank: int, size: int, port: int, folder: str, options: argparse.Namespace, answers) -> None:
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # the store lives in the parent
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    transport = Processes(rank, size, "127.0.0.1", port)
    config = TrainConfig(ModelConfig("sage", options.layers, options.hidden))
    trainers = [Trainer(row, Book.read(folder), config, transport) for row in options.recipes.split(";")]
    for trainer in trainers:
        trainer.seconds(2)
    answers.put((rank, [[trainer.seconds(options.steps) for trainer in trainers] for _ in range(options.turns)]))
    transport.close()


def start(work: Callable[..., None], options: argparse.Namespace) -> dict[int, Any]:
    """Return what each worker answers, by rank: ``work(rank, size, port, folder, options, answers)``."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as scratch:
        folder = str(Path(scratch) / "parts")
        if is_parts_folder(options.graph):
            folder = options.graph
        else:
            partition(load(options.graph), options.workers, out=Path(folder), objective="vol")
        answers = context.Queue()
        about = (options.workers, store.port, folder, options, answers)
        workers = [context.Process(target=work, args=(rank, *about)) for rank in range(options.workers)]
        for worker in workers:
            worker.start()
        found = dict(answers.get(timeout=3600) for _ in workers)
        for worker in workers:
            worker.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", default="synthetic:reddit@0.1")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--recipes", default=DEFAULT, help="the first is what the others are compared with")
    options = parser.parse_args()
    turns = start(work, options)[0]
    rows = options.recipes.split(";")
    print(f"{options.graph}, {options.workers} workers, sage {options.layers} × {options.hidden}: time of a step")
    for k, row in enumerate(rows):
        ratio = median(turn[k] / turn[0] for turn in turns)
        print(f"{row:<72} {median(turn[k] for turn in turns) * 1e3:8.1f} ms  {ratio:6.3f} × {rows[0]}")


if __name__ == "__main__":
    main()
