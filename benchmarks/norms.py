"""The cost of BatchNorm over all workers' rows: a step of SAGE with it, against the same step with other norms.

    python benchmarks/norms.py [--graph synthetic:reddit@0.1] [--workers 4] [--turns 9] [--steps 3]

Four models take turns in the same processes: without a norm; with a BatchNorm of each worker's own rows (what torch
computes, and wrong on parts); with one over all workers' rows; and, on one worker with the whole graph, without and
with torch's plain BatchNorm1d. "Synchronised BatchNorm adds" compares the third with the second: the norm's own
arithmetic is in both. Workers have one thread each; seconds are those of the clock and, summed over the workers, of
their processors.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from torch import Tensor, nn

from isthmus import recipes
from isthmus.comm import Hub, Processes, Transport, Where
from isthmus.engine import TrainConfig
from isthmus.engine.learning import OPTIMIZERS
from isthmus.engine.prepare import Views
from isthmus.engine.step import train_step
from isthmus.graph import load
from isthmus.launch.memory import kept_blocks
from isthmus.nn import SAGEConv, distribute
from isthmus.partition import Book, partition


class Alone(nn.Module):
    """A BatchNorm1d that nobody shares between workers."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = [nn.BatchNorm1d(width)]  # in a list: modules inside a list are not found
        self.weight, self.bias = self.norm[0].weight, self.norm[0].bias

    def forward(self, x: Tensor) -> Tensor:
        return self.norm[0](x)


class Net(nn.Module):
    def __init__(self, features: int, classes: int, options: argparse.Namespace, norm: type[nn.Module]):
        super().__init__()
        widths = [features, *[options.hidden] * (options.layers - 1), classes]
        self.convs = nn.ModuleList(SAGEConv(a, b) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(norm(width) for width in widths[1:-1])

    def forward(self, graph, x: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=False):
            x = graph.dropout(norm(conv(graph, x)), 0.5 if self.training else 0.0, relu=True)
        return self.convs[-1](graph, x)


class Trainer:
    """One model on this worker, ready to do a step at a time."""

    def __init__(self, book: Book, transport: Transport, options: argparse.Namespace, norm: type[nn.Module]):
        self.transport, self.labelled, self.at = transport, book.train[0], 0
        self.view = Views.of(
            book, TrainConfig(), recipes.find("exact").policy({"precision": options.precision}), transport
        ).train
        torch.manual_seed(0)
        self.model = distribute(Net(book.features, book.classes, options, norm))
        self.optimizer = OPTIMIZERS["adam"](self.model.parameters(), lr=0.01)

    def seconds(self, steps: int) -> tuple[float, float]:
        """Return the seconds of a step by the clock, and of this worker's processor; all workers begin together."""
        self.transport.all_reduce(torch.zeros(1), Where("turn", "reduce", self.at))
        begun, used = time.perf_counter(), time.process_time()
        for _ in range(steps):
            train_step(self.model, self.optimizer, self.view, self.labelled, self.at)
            self.at += 1
        taken = (time.perf_counter() - begun) / steps, (time.process_time() - used) / steps
        self.view.graph.runtime.drain()
        return taken


CONTENDERS = {"no norm": nn.Identity, "each worker its own": Alone, "over all workers": nn.BatchNorm1d}


def work(rank: int, size: int, port: int, folder: str, options: argparse.Namespace, answers) -> None:
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # the store lives in the parent
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    with kept_blocks():  # as workers do
        answers.put((rank, measured(rank, size, port, folder, options)))


def measured(rank: int, size: int, port: int, folder: str, options: argparse.Namespace) -> tuple[list, list]:
    """Return the seconds of every turn of the workers, and of the single worker (on worker 0)."""
    transport = Processes(rank, size, "127.0.0.1", port)
    book = Book.read(f"{folder}/many")
    trainers = [Trainer(book, transport, options, norm) for norm in CONTENDERS.values()]
    for trainer in trainers:
        trainer.seconds(2)
    turns = [[trainer.seconds(options.steps) for trainer in trainers] for _ in range(options.turns)]
    transport.all_reduce(torch.zeros(1), Where("turn", "reduce", 0))
    del trainers
    single: list = []
    if rank == 0 and not options.parts_only:
        whole = Book.read(f"{folder}/one")
        alone = [Trainer(whole, Hub(1).transport(0), options, norm) for norm in (nn.Identity, Alone)]
        for trainer in alone:
            trainer.seconds(1)
        single = [[trainer.seconds(1) for trainer in alone] for _ in range(options.turns)]
    transport.all_reduce(torch.zeros(1), Where("turn", "reduce", 1))
    transport.close()
    return turns, single


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", default="synthetic:reddit@0.1")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--parts-only", action="store_true", help="leave out the single worker")
    options = parser.parse_args()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as scratch:
        graph = load(options.graph)
        partition(graph, options.workers, out=Path(scratch) / "many")
        partition(graph, 1, out=Path(scratch) / "one")
        del graph
        answers = context.Queue()
        about = (options.workers, store.port, scratch, options, answers)
        workers = [context.Process(target=work, args=(rank, *about)) for rank in range(options.workers)]
        for worker in workers:
            worker.start()
        found = dict(answers.get(timeout=3600) for _ in workers)
        for worker in workers:
            worker.join()
    print(f"{options.graph}, {options.workers} workers, sage {options.layers} × {options.hidden}: seconds of a step")
    clock = [[one[0] for one in turn] for turn in found[0][0]]
    cpu = [
        [sum(found[rank][0][turn][k][1] for rank in found) for k in range(len(CONTENDERS))]
        for turn in range(options.turns)
    ]
    for k, name in enumerate(CONTENDERS):
        _line(f"{options.workers} workers, {name}", [turn[k] for turn in clock], [turn[k] for turn in cpu])
    single = found[0][1]
    for k, name in enumerate(("no norm", "torch's BatchNorm1d")[: len(single and single[0])]):
        _line(f"1 worker, {name}", [turn[k][0] for turn in single], [turn[k][1] for turn in single])
    for title, turns in (("clock", clock), ("processors", cpu)):
        shared, whole = ((median(turn[2] / turn[k] for turn in turns) - 1) * 100 for k in (1, 0))
        print(f"by the {title}: synchronised BatchNorm adds {shared:.1f} % to unsynchronised, {whole:.1f} % to no norm")
    if single:
        plain = (median(turn[1][0] / turn[0][0] for turn in single) - 1) * 100
        print(f"on one worker torch's plain BatchNorm1d adds {plain:.1f} % to no norm")


def _line(name: str, clock: list[float], cpu: list[float]) -> None:
    print(
        f"  {name:<36} clock {median(clock) * 1e3:8.1f} ms (best {min(clock) * 1e3:8.1f}), "
        f"processors {median(cpu) * 1e3:8.1f} ms"
    )


if __name__ == "__main__":
    main()
