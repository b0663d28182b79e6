"""The share of a step that goes into measuring the error of rows: the time inside that code, counted.

    python benchmarks/watching.py [--graph synthetic:reddit@0.1] [--workers 2] [--steps 40]
                                  [--recipes "isthmus guard_error=1e-9;isthmus guard=off;pipegcn"]

A clock runs around every call that only the measurement makes (docs/guard.md): showing rows and gradients to the watch,
its figures, the controller's decision. A step that is 1 % longer cannot be told from another on a noisy machine; a
count can. With guard_error=1e-9 all rows stay exact. Workers are processes over the loopback interface, one thread
each; where they are more than the cores, only the share of CPU time tells. GRAPH may be a parts folder.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
from overhead import Trainer, start

from isthmus.comm import Processes
from isthmus.engine import TrainConfig
from isthmus.local import crossing, graph, runtime
from isthmus.nn import ModelConfig
from isthmus.partition import Book

RECIPES = "isthmus guard_error=1e-9;isthmus guard=off;pipegcn;psc-gcn"


class Clock:
    """The seconds inside some functions, of this process and of its processor."""

    def __init__(self) -> None:
        self.inside = self.busy = 0.0

    def around(self, place, name: str) -> None:
        """Count every call of a function from now on."""
        call = getattr(place, name)

        def counted(*given):
            begun, busy = time.perf_counter(), time.thread_time()
            result = call(*given)
            self.inside, self.busy = (
                self.inside + time.perf_counter() - begun,
                self.busy + time.thread_time() - busy,
            )
            return result

        setattr(place, name, counted)


def work(rank: int, size: int, port: int, folder: str, options: argparse.Namespace, answers) -> None:
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # the store lives in the parent
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    transport, clock = Processes(rank, size, "127.0.0.1", port), Clock()
    for place, name in [(graph, "watch_rows"), (graph, "remember"), (crossing, "watch_gradients")]:
        clock.around(place, name)
    for name in ("figures", "observe"):
        clock.around(runtime.Runtime, name)
    config = TrainConfig(ModelConfig("sage", options.layers, options.hidden, dropout=0.5))
    found = []
    for row in options.recipes.split(";"):
        trainer = Trainer(row, Book.read(folder), config, transport)
        trainer.seconds(3)
        clock.inside = clock.busy = 0.0
        busy, step = time.process_time(), trainer.seconds(options.steps)  # a mean: not every step looks
        busy = time.process_time() - busy
        found.append((step, clock.inside / options.steps / step, clock.busy / busy, clock.inside / options.steps))
    answers.put((rank, found))
    transport.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", default="synthetic:reddit@0.1")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--recipes", default=RECIPES)
    options = parser.parse_args()
    each = start(work, options)
    print(f"{options.graph}, {options.workers} workers, sage {options.layers} × {options.hidden}: measuring, of a step")
    for k, row in enumerate(options.recipes.split(";")):
        step, share, busy, inside = (max(each[rank][k][n] for rank in each) for n in range(4))
        print(
            f"{row:<40} {inside * 1e3:6.2f} of {step * 1e3:7.1f} ms  {share:7.2%} of the time, {busy:7.2%} of its CPU"
        )


if __name__ == "__main__":
    main()
