"""One full-graph epoch (forward, backward, Adam) of Isthmus against PyG, interleaved in one process.

    python benchmarks/engine.py [--graphs synthetic:reddit@0.2,synthetic:products@0.15] [--repeats 3] [--device cuda]

Prints seconds per epoch (median) and the ratio of PyG's fastest form to each form of Isthmus, and the memory that each
holds at its peak, measured in a process of its own. `--dgl PYTHON` adds DGL through an interpreter that has it.
Peers get the graph as it was given; with `--peers-ordered` in the locality order that Isthmus puts it in. All of them,
peers too, run with huge pages, as `isthmus train` does (without them PyG is slower). With `--device` all of them
compute there, clocks stop when the device has finished, and the memory is the device's own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from peers import FORMS, PygModel, adjacency, fits, pyg_step

from isthmus.comm import Hub
from isthmus.device import described, pick
from isthmus.engine import TrainConfig
from isthmus.engine.config import DTYPES
from isthmus.engine.prepare import Views
from isthmus.engine.record import memory_peak_bytes
from isthmus.engine.step import train_step
from isthmus.graph import Graph, load
from isthmus.graph.folder import save_graph
from isthmus.launch.memory import use_huge_pages
from isthmus.local import Policy
from isthmus.nn import ModelConfig
from isthmus.partition import Book, Part, partition

MODELS = {"sage": (3, 128), "gcn": (2, 64)}
HERE = Path(__file__).parent


class Ours:
    """One worker on a graph that was ordered for locality, as `isthmus train --workers 1` runs it."""

    def __init__(self, parts: Path, model: str, dropout: float, rows_dtype: str | None, device: torch.device):
        layers, hidden = MODELS[model]
        shape = ModelConfig(model, layers, hidden, dropout=dropout)
        config = TrainConfig(model=shape, rows_dtype=rows_dtype)
        book = Book.read(parts)
        transport = Hub(1).transport(0)
        transport.use(device)
        self.views = Views.of(book, config, Policy(), transport)
        self.model = shape.build(book.features, book.classes, 0, DTYPES[config.dtype]).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.labelled, self.step = book.train[0], 0

    def __call__(self) -> None:
        train_step(self.model, self.optimizer, self.views.train, self.labelled, self.step)
        self.step += 1


def ordered(graph: Graph, part: Part) -> Graph:
    """The graph with its nodes in the order of its only part."""
    names = ("x", "y", "train_mask", "val_mask", "test_mask")
    return replace(graph, indptr=part.inner_indptr, indices=part.inner_indices, **{n: getattr(part, n) for n in names})


class Pyg:
    """PyG on the graph as it was given."""

    def __init__(self, graph_folder: Path, model: str, dropout: float, form: str, device: torch.device):
        graph = load(str(graph_folder))
        layers, hidden = MODELS[model]
        targets = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
        edges = torch.from_numpy(np.stack([np.asarray(graph.indices, np.int64), targets]))
        self.graph = adjacency(edges, graph.num_nodes, form).to(device)
        arrays = np.array(graph.x, np.float32), np.array(graph.y), np.array(graph.train_mask[:, 0])
        self.x, self.y, self.mask = (torch.from_numpy(array).to(device) for array in arrays)
        self.model = PygModel(model, [graph.num_features, *[hidden] * (layers - 1), graph.num_classes], dropout).to(
            device
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def __call__(self) -> None:
        pyg_step(self.model, self.optimizer, self.x, self.graph, self.y, self.mask)


def contender(name: str, folder: Path, model: str, dropout: float, device: torch.device):
    if name.startswith("isthmus"):
        return Ours(folder / "parts", model, dropout, "bf16" if name.endswith("bf16") else None, device)
    return Pyg(folder / "graph", model, dropout, name.removeprefix("pyg "), device)


def contenders(edges: int, width: int) -> list[str]:
    return ["isthmus fp32", "isthmus bf16", *(f"pyg {form}" for form in FORMS if fits(form, edges, width))]


def measure(
    names: list[str], folder: Path, model: str, dropout: float, repeats: int, device: torch.device
) -> dict[str, float]:
    """Median seconds of an epoch, the contenders taking turns."""
    running = {name: contender(name, folder, model, dropout, device) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in running}
    for turn in range(repeats + 1):
        for name, epoch in running.items():
            begun = time.perf_counter()
            epoch()
            finish(device)
            if turn:  # the first epoch prepares
                seconds[name].append(time.perf_counter() - begun)
    return {name: median(values) for name, values in seconds.items()}


def finish(device: torch.device) -> None:
    """Wait until the device has done all that it was asked for."""
    if device.type != "cpu":
        torch.get_device_module(device).synchronize(device)


def memory(name: str, folder: Path, model: str, dropout: float, threads: int, device: torch.device) -> float:
    """Peak GiB, of the process or on the device, of three epochs of one contender."""
    about = (name, folder, model, dropout, threads, device)
    command = [sys.executable, __file__, "--alone", *map(str, about)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def dgl(python: str, folder: Path, model: str, dropout: float, threads: int, repeats: int) -> float:
    arguments = [str(value) for value in (folder / "graph", model, dropout, threads, repeats)]
    command = [python, str(HERE / "dgl_peer.py"), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    use_huge_pages()
    if sys.argv[1:2] == ["--alone"]:
        name, folder, model, dropout, threads, asked = sys.argv[2:]
        torch.set_num_threads(int(threads))
        device = pick(asked)
        epoch = contender(name, Path(folder), model, float(dropout), device)
        for _ in range(3):
            epoch()
        finish(device)
        on_host = device.type == "cpu"
        print(
            (memory_peak_bytes() if on_host else torch.get_device_module(device).max_memory_allocated(device)) / 2**30
        )
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default="synthetic:reddit@0.2,synthetic:products@0.15")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="where all contenders compute")
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--dgl", help="a Python that has DGL")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--peers-ordered", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = pick(options.device)
    for source in options.graphs.split(","):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            graph = load(source)
            book = partition(graph, 1, out=folder / "parts")
            save_graph(ordered(graph, book.part(0)) if options.peers_ordered else graph, folder / "graph")
            size = f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges"
            print(f"\n{source}: {size}, {options.threads} threads, {described(device)}", flush=True)
            names = contenders(graph.num_edges, graph.num_features)
            del graph
            for model, (layers, hidden) in MODELS.items():
                seconds = measure(names, folder, model, options.dropout, options.repeats, device)
                if options.dgl:
                    seconds["dgl"] = dgl(options.dgl, folder, model, options.dropout, options.threads, options.repeats)
                fastest = min(value for name, value in seconds.items() if name.startswith("pyg"))
                print(f"  {layers}-layer {model}-{hidden}")
                for name, value in seconds.items():
                    line = f"    {name:<16} {value:7.3f} s   {fastest / value:5.2f} × PyG's fastest"
                    if "dgl" in seconds:
                        line += f"   {seconds['dgl'] / value:5.2f} × DGL"
                    if not options.no_memory and name in names:
                        peak = memory(name, folder, model, options.dropout, options.threads, device)
                        line += f"   {peak:5.2f} GiB"
                    print(line, flush=True)


if __name__ == "__main__":
    main()
