"""Aggregation at several widths: Isthmus against torch and PyG, interleaved, and as a share of the memory's speed.

    python benchmarks/kernels.py [--graph synthetic:products@0.15] [--repeats 3] [--threads 2] [--dgl PYTHON]

`forward` is the mean over neighbours; `backward` its transpose. Gather bandwidth is measured on the spot: rows of the
same width copied in random order. The graph is relabelled into locality blocks, as parts are, and the peers get it in
that order too, so that the ratios speak of the kernels alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.graph import load
from isthmus.kernels import Csr, Weights
from isthmus.local.graph import as_tensor
from isthmus.partition import partition


def interleaved(tasks: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each task, taking turns; the first turn prepares."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(repeats + 1):
        for name, task in tasks.items():
            begun = time.perf_counter()
            task()
            if turn:
                seconds[name].append(time.perf_counter() - begun)
    return {name: median(values) for name, values in seconds.items()}


def contenders(csr: Csr, x: Tensor, grad: Tensor) -> dict[str, Callable[[], object]]:
    """Forward and backward of a mean over neighbours, by each of the ways that are installed."""
    from torch_geometric import EdgeIndex

    nodes, degree = csr.num_rows, csr.indptr.diff().clamp_min(1)
    scale, half, half_grad = 1.0 / degree.float(), x.bfloat16(), grad.bfloat16()
    values = torch.repeat_interleave(scale, csr.indptr.diff())
    matrix = torch.sparse_csr_tensor(csr.indptr, csr.indices.long(), values, (nodes, nodes))
    ones = torch.sparse_csr_tensor(csr.indptr, csr.indices.long(), torch.ones(csr.num_edges), (nodes, nodes))
    pairs, size = torch.stack([csr.indices.long(), csr.edge_rows]), (nodes, nodes)
    edges = EdgeIndex(pairs, sparse_size=size, sort_order="col", is_undirected=True).fill_cache_()

    def backward(product: Callable[[Tensor], Tensor]) -> Callable[[], object]:
        def run() -> None:
            leaf = x.detach().requires_grad_()
            product(leaf).backward(grad)

        return run

    return {
        "isthmus fp32 forward": lambda: kernels.aggregate(csr, x, Weights(row=scale)),
        "isthmus bf16 forward": lambda: kernels.aggregate(csr, half, Weights(row=scale)),
        "torch CSR @ forward": lambda: matrix @ x,
        "torch.sparse.mm(reduce) forward": lambda: torch.sparse.mm(ones, x, "mean"),
        "PyG EdgeIndex forward": lambda: edges.matmul(x, reduce="mean", transpose=True),
        "isthmus fp32 backward": lambda: kernels.aggregate(csr, grad, Weights(col=scale)),
        "isthmus bf16 backward": lambda: kernels.aggregate(csr, half_grad, Weights(col=scale)),
        "torch CSR @ fwd+bwd": backward(lambda leaf: matrix @ leaf),
        "PyG EdgeIndex fwd+bwd": backward(lambda leaf: edges.matmul(leaf, reduce="mean", transpose=True)),
    }


def gather_bandwidth(rows: int, width: int) -> float:
    """Bytes per second of copying rows in random order."""
    x, order = torch.randn(rows, width), torch.randperm(rows).to(torch.int32)
    out = torch.empty_like(x)
    seconds = interleaved({"gather": lambda: kernels.gather_rows(x, order, out)}, 5)["gather"]
    return rows * width * 4 / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", default="synthetic:products@0.15")
    parser.add_argument("--widths", default="64,128,256")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dgl", help="a Python that has DGL")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as scratch:
        part = partition(load(options.graph), 1, out=Path(scratch) / "parts").part(0)
        csr = Csr(as_tensor(part.inner_indptr), as_tensor(part.inner_indices), len(part.nodes))
        print(f"{options.graph}: {csr.num_rows:,} nodes, {csr.num_edges:,} edges, {options.threads} threads")
        for width in map(int, options.widths.split(",")):
            x, grad = torch.randn(csr.num_rows, width), torch.randn(csr.num_rows, width)
            seconds = interleaved(contenders(csr, x, grad), options.repeats)
            bandwidth = gather_bandwidth(csr.num_rows, width)
            print(f"F = {width}   (random gather here: {bandwidth / 1e9:.1f} GB/s)")
            if options.dgl:
                script = str(Path(__file__).parent / "dgl_kernels.py")
                arguments = [f"{scratch}/parts/part-0", str(width), str(options.threads), str(options.repeats)]
                command = [options.dgl, script, *arguments]
                said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                seconds |= json.loads(said.splitlines()[-1])
            for name, value in seconds.items():
                direction = name.rsplit(" ", 1)[1]
                ours = seconds["isthmus fp32 forward"]
                if direction == "fwd+bwd":
                    ours += seconds["isthmus fp32 backward"]
                elif direction == "backward":
                    ours = seconds["isthmus fp32 backward"]
                rate = csr.num_edges * width * 4 / value if "fwd+bwd" not in name else float("nan")
                share = f"{rate / bandwidth:5.2f} of gather" if rate == rate else " " * 14
                print(f"  {name:<34} {value * 1e3:8.1f} ms   {value / ours:5.2f} × isthmus fp32   {share}", flush=True)


if __name__ == "__main__":
    main()
