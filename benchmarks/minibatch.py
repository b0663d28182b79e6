"""Mini-batches on one core: sampling, gathering of rows and training, side by side with GraphBolt, torch, DGL and PyG.

    python benchmarks/minibatch.py [--graph synthetic:products@0.15] [--repeats 5] [--hidden 256] [--dgl PYTHON]

All have one thread and take turns, with the same seed nodes; all train on the same batches. Times are those of the
processor, medians, so that others on the machine change them little. Memory is that of `isthmus train` (huge pages,
freed blocks are kept), for PyG and torch as well; "torch as it is" is a process without these. The graph has the order
in which parts keep it, for the peers as well. `--dgl PYTHON` adds GraphBolt (int32) and DGL through an interpreter that
has DGL 2.1.0.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from isthmus import NeighborLoader, kernels
from isthmus.comm import Hub
from isthmus.graph import load
from isthmus.launch.memory import kept_blocks, use_huge_pages
from isthmus.local import LocalGraph, Policy
from isthmus.minibatch.apart import layers_of
from isthmus.nn import ModelConfig
from isthmus.partition import Book, partition
from isthmus.sample import Blocks, NeighbourSampler, Numbering, Structure
from isthmus.shard.load import as_tensor

HERE = Path(__file__).parent
PLAIN = """
import sys, time, numpy, torch
torch.set_num_threads(1)
x, nodes = (torch.from_numpy(numpy.load(file, mmap_mode="c")) for file in sys.argv[1:])
torch.index_select(x, 0, nodes)
begun = time.process_time()
torch.index_select(x, 0, nodes)
print(time.process_time() - begun)
"""


class Turns:
    """Seconds of tasks that take turns; the first turn of each is not counted."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def take(self, name: str, task: Callable[[], object]) -> object:
        begun = time.process_time()
        result = task()
        self.seconds.setdefault(name, []).append(time.process_time() - begun)
        return result

    def of(self, name: str) -> float:
        return median(self.seconds[name][1:])


class Ours:
    """Training steps on blocks, through the models and the exchange of Isthmus, in float32 or bf16."""

    def __init__(self, book: Book, hidden: int, layers: int, precision: str):
        policy = Policy(precision=precision)
        self.graph = LocalGraph.from_part(book.part(0), Hub(1).transport(0), book.symmetric, policy)
        shape = ModelConfig("sage", layers, hidden, dropout=0.0)
        self.model = shape.build(book.features, book.classes, 0)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.003)

    def step(self, blocks: Blocks, x: Tensor, y: Tensor) -> None:
        assert blocks.degree is not None
        self.optimizer.zero_grad(set_to_none=True)
        self.graph.runtime.begin(0, layers=layers_of(blocks.layers, blocks.original, blocks.degree))
        self.graph.runtime.backward(functional.cross_entropy(self.model(self.graph, x), y))
        self.optimizer.step()


class Pyg(nn.Module):
    """The same model by PyG's convolutions: each on its block, or all on the subgraph that PyG's loader gives.

    ``form``: "blocks", on the very batches of the others; "subgraph", as in PyG's examples: every layer computes all
    nodes of the batch; "trimmed": each layer leaves out what the next ones do not read (`trim_to_layer`).
    """

    def __init__(self, widths: list[int], form: str):
        super().__init__()
        from torch_geometric.nn import SAGEConv

        self.convs = nn.ModuleList(SAGEConv(a, b) for a, b in pairwise(widths))
        self.optimizer, self.form = torch.optim.Adam(self.parameters(), lr=0.003), form

    def step(self, blocks: Blocks, subgraph, x: Tensor, y: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        out = self.of_blocks(blocks, x) if self.form == "blocks" else self.of_subgraph(subgraph)
        functional.cross_entropy(out, y).backward()
        self.optimizer.step()

    def of_blocks(self, blocks: Blocks, x: Tensor) -> Tensor:
        for k, (conv, block) in enumerate(zip(self.convs, blocks.layers, strict=True)):
            edges = torch.stack([block.csr.indices.long(), block.csr.edge_rows])
            x = conv((x, x[: block.csr.num_rows]), edges)
            x = x.relu() if k < len(blocks.layers) - 1 else x
        return x

    def of_subgraph(self, batch) -> Tensor:
        from torch_geometric.utils import trim_to_layer

        x, edges = batch.x, batch.edge_index
        for k, conv in enumerate(self.convs):
            if self.form == "trimmed":
                x, edges, _ = trim_to_layer(k, batch.num_sampled_nodes, batch.num_sampled_edges, x, edges)
            x = conv(x, edges)
            x = x.relu() if k < len(self.convs) - 1 else x
        return x[: batch.batch_size]


class Dgl:
    """The peer process, which answers a line with a line."""

    def __init__(self, python: str, folder: Path, fanouts: list[int], hidden: int):
        command = [python, str(HERE / "dgl_minibatch.py"), str(folder), ",".join(map(str, fanouts)), str(hidden)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, task: str, file: Path) -> dict[str, float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(task, file, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def plain_gather(book: Book, nodes: Tensor, folder: Path) -> float:
    """Return the seconds of `index_select` in a process of its own, with the memory that torch takes by itself."""
    np.save(folder / "nodes.npy", nodes.numpy())
    environ = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"}
    files = [str(book.folder / "part-0" / "x.npy"), str(folder / "nodes.npy")]
    return float(
        subprocess.run([sys.executable, "-c", PLAIN, *files], env=environ, capture_output=True, check=True).stdout
    )


def save_batch(file: Path, blocks: Blocks, x: Tensor, y: Tensor) -> None:
    arrays = {"x": x.numpy(), "y": y.numpy()}
    for k, block in enumerate(blocks.layers):
        arrays |= {f"indptr{k}": block.csr.indptr.numpy(), f"indices{k}": block.csr.indices.numpy()}
        arrays[f"sources{k}"] = np.array(block.csr.num_cols)
    np.savez(file, **arrays)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--graph", default="synthetic:products@0.15")
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--batch", type=int, default=1024)
    options.add_argument("--fanout", default="15,10,5")
    options.add_argument("--hidden", type=int, default=256)
    options.add_argument("--order", default="metis", help="of the nodes in the part; given: as the graph has them")
    options.add_argument("--no-training", action="store_true")
    options.add_argument("--dgl", metavar="PYTHON")
    asked = options.parse_args()
    use_huge_pages()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        partition(load(asked.graph), 1, out=Path(folder) / "parts", order=asked.order)
        with kept_blocks():
            run(asked, Path(folder), Book.read(Path(folder) / "parts"))


def run(asked: argparse.Namespace, folder: Path, book: Book) -> None:
    fanouts, part = [int(k) for k in asked.fanout.split(",")], book.part(0)
    structure, x = Structure.of_book(book), as_tensor(part.x)
    sampler, numbering = NeighbourSampler(tuple(fanouts)), Numbering(book.nodes)
    labor = NeighbourSampler(tuple(fanouts), "labor")
    train = as_tensor(part.train_mask)[:, 0].nonzero().flatten()
    peer = None
    if asked.dgl:
        np.save(folder / "indptr.npy", structure.pattern.indptr.numpy())
        np.save(folder / "indices.npy", structure.pattern.indices.numpy())
        (folder / "widths").write_text(f"{book.features} {book.classes}")
        peer = Dgl(asked.dgl, folder, fanouts, asked.hidden)
    turns, edges, rows = Turns(), {"Isthmus": 0, "LABOR-0": 0, "GraphBolt int32": 0}, []
    models = {} if asked.no_training else {
        "Isthmus": Ours(book, asked.hidden, len(fanouts), "fp32"),
        "Isthmus bf16": Ours(book, asked.hidden, len(fanouts), "bf16"),
        **{f"PyG, {form}": Pyg([book.features, *[asked.hidden] * (len(fanouts) - 1), book.classes], form)
           for form in ("blocks", "trimmed", "subgraph")},
    }  # fmt: skip
    loader = NeighborLoader(book.folder, fanouts, batch_size=asked.batch, seed=0)
    original = as_tensor(part.nodes)
    buffer, memory = torch.empty(0), x.clone()
    for step in range(asked.repeats + 1):
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(step))
        seeds = train[order[: asked.batch]]
        blocks = turns.take("sample Isthmus", lambda s=seeds, t=step: sampler.blocks(structure, s, t, numbering))
        few = turns.take("sample LABOR-0", lambda s=seeds, t=step: labor.blocks(structure, s, t, numbering))
        if step:
            edges["Isthmus"] += sum(block.csr.num_edges for block in blocks.layers)
            edges["LABOR-0"] += sum(block.csr.num_edges for block in few.layers)
            rows.append((len(blocks.nodes), len(few.nodes)))
        if peer is not None:
            np.save(folder / "seeds.npy", seeds.numpy())
            told = peer.ask("sample", folder / "seeds.npy")
            turns.seconds.setdefault("sample GraphBolt int32", []).append(told["seconds"])
            edges["GraphBolt int32"] += int(told["edges"]) if step else 0
        if len(buffer) < len(blocks.nodes):
            buffer = torch.empty(len(blocks.nodes) * 5 // 4, x.shape[1])
        out, nodes = buffer[: len(blocks.nodes)], blocks.nodes
        for where, source in (("memory", memory), ("map", x)):
            turns.take(f"gather Isthmus, {where}", lambda s=source, n=nodes, o=out: kernels.gather_rows(s, n, o))
            turns.take(f"gather torch, {where}", lambda s=source, n=nodes: torch.index_select(s, 0, n))
            turns.take(
                f"gather torch reused, {where}", lambda s=source, n=nodes, o=out: torch.index_select(s, 0, n, out=o)
            )
        turns.seconds.setdefault("gather torch as it is, map", []).append(plain_gather(book, nodes, folder))
        y = as_tensor(part.y)[seeds]
        batch = loader(original[seeds]) if models else None
        for name, model in models.items():
            given = (blocks, batch, out, y) if isinstance(model, Pyg) else (blocks, out, y)
            turns.take(f"train {name}", lambda m=model, g=given: m.step(*g))
        if peer is not None and models:
            save_batch(folder / "batch.npz", blocks, out, y)
            turns.seconds.setdefault("train DGL", []).append(peer.ask("train", folder / "batch.npz")["seconds"])
    if peer is not None:
        peer.close()
    show(turns, {name: count / asked.repeats for name, count in edges.items() if count}, rows, x.shape[1], asked)


def show(turns: Turns, edges: dict[str, float], rows: list[tuple[int, int]], width: int, asked) -> None:
    nodes, few = (median(each) for each in zip(*rows, strict=True))
    print(f"{asked.graph}, fanout {asked.fanout}, {asked.batch} seeds: {nodes:,.0f} nodes, LABOR-0 {few:,.0f}\n")
    print("| task | | ms | per second | Isthmus is |\n|---|---|---|---|---|")
    for name in turns.seconds:
        task, who = name.split(" ", 1)
        seconds, own = turns.of(name), name
        if task == "sample":
            speed, own = f"{edges[who] / seconds / 1e6:.1f} M edges", "sample Isthmus"
            ratio = edges["Isthmus"] / turns.of(own) * seconds / edges[who]
        elif task == "gather":
            speed, own = f"{nodes * width * 4 / seconds / 1e9:.1f} GB", f"gather Isthmus, {who.split(', ')[1]}"
            ratio = seconds / turns.of(own)
        else:
            speed, own = f"{asked.batch / seconds:,.0f} seeds", "train Isthmus"
            ratio = seconds / turns.of(own)
        print(f"| {task} | {who} | {1e3 * seconds:.1f} | {speed} | {'' if name == own else f'{ratio:.2f} ×'} |")


if __name__ == "__main__":
    sys.exit(main())
