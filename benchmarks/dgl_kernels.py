"""DGL's mean over neighbours, for an interpreter that has it.

python benchmarks/dgl_kernels.py PART_FOLDER WIDTH THREADS REPEATS     prints {name: median seconds}
"""

import json
import sys
import time
from pathlib import Path
from statistics import median

import dgl
import dgl.ops
import numpy as np
import torch


def main():
    folder, width, threads, repeats = Path(sys.argv[1]), *map(int, sys.argv[2:])
    torch.set_num_threads(threads)
    indptr, indices = np.load(folder / "inner_indptr.npy"), np.load(folder / "inner_indices.npy").astype(np.int64)
    graph = dgl.graph(("csc", (indptr, indices, np.empty(0, np.int64)))).int().formats(["csc", "csr"])
    graph.create_formats_()
    x, grad = torch.randn(graph.num_nodes(), width), torch.randn(graph.num_nodes(), width)

    def forward():
        dgl.ops.copy_u_mean(graph, x)

    def both():
        dgl.ops.copy_u_mean(graph, x.detach().requires_grad_()).backward(grad)

    seconds = {"DGL forward": [], "DGL fwd+bwd": []}
    for turn in range(repeats + 1):
        for name, task in (("DGL forward", forward), ("DGL fwd+bwd", both)):
            begun = time.perf_counter()
            task()
            if turn:
                seconds[name].append(time.perf_counter() - begun)
    print(json.dumps({name: median(values) for name, values in seconds.items()}))


if __name__ == "__main__":
    main()
