"""DGL's side of `minibatch.py`, for an interpreter that has it (DGL 2.1.0, torch 2.2.1, numpy 1.26, torchdata 0.7.1).

python benchmarks/dgl_minibatch.py FOLDER FANOUTS HIDDEN     reads tasks from stdin, a line each, and answers in json

sample SEEDS.npy: GraphBolt, int32, with relabelling. train BATCH.npz: a step of SAGE on blocks that are given. The
seconds are the processor's, of one thread.
"""

import json
import sys
import time
from pathlib import Path

import dgl
import dgl.graphbolt as gb
import numpy as np
import torch
from dgl_sage import Sage
from torch.nn import functional


def sample(graph, seeds, fanouts):
    edges = 0
    for fanout in fanouts:
        drawn = graph.sample_neighbors(seeds, torch.tensor([fanout])).sampled_csc
        edges += len(drawn.indices)
        seeds, _ = gb.unique_and_compact_csc_formats(drawn, seeds)
    return edges


def blocks_of(batch, layers):
    found = []
    for k in range(layers):
        indptr, indices = (torch.from_numpy(batch[f"{name}{k}"]) for name in ("indptr", "indices"))
        sizes = {"num_src_nodes": int(batch[f"sources{k}"]), "num_dst_nodes": len(indptr) - 1}
        block = dgl.create_block(("csc", (indptr.int(), indices.int(), torch.empty(0, dtype=torch.int32))), **sizes)
        found.append(block.formats(["csc", "csr"]))
    return found


def main():
    folder, fanouts, hidden = Path(sys.argv[1]), [int(k) for k in sys.argv[2].split(",")], int(sys.argv[3])
    torch.set_num_threads(1)
    indptr, indices = (torch.from_numpy(np.load(folder / f"{name}.npy")) for name in ("indptr", "indices"))
    graph = gb.fused_csc_sampling_graph(indptr, indices)
    widths = [int(k) for k in (folder / "widths").read_text().split()]
    model = Sage([widths[0], *[hidden] * (len(fanouts) - 1), widths[1]])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for line in sys.stdin:
        task, file = line.split()
        edges = 0
        if task == "sample":
            seeds = torch.from_numpy(np.load(file)).int()
            begun = time.process_time()
            edges = sample(graph, seeds, fanouts)
        else:
            batch = np.load(file)
            x, y = torch.from_numpy(batch["x"]), torch.from_numpy(batch["y"])
            begun = time.process_time()
            optimizer.zero_grad(set_to_none=True)
            functional.cross_entropy(model(blocks_of(batch, len(fanouts)), x), y).backward()
            optimizer.step()
        print(json.dumps({"seconds": time.process_time() - begun, "edges": edges}), flush=True)


if __name__ == "__main__":
    main()
