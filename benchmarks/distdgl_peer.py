"""DistDGL's side of `distdgl.py`, for an interpreter that has DGL 2.1.0 (torch 2.2.1, numpy 1.26, torchdata 0.7.1).

python benchmarks/distdgl_peer.py part FOLDER                               cuts graph.npz into two parts by METIS
python benchmarks/distdgl_peer.py train FANOUT BATCH HIDDEN EPOCHS CLASSES  a server or a trainer, as DGL_ROLE says

A trainer prints a line of json for every epoch: its seconds, those of sampling, features and computing, its seeds.
"""

import json
import os
import sys
import time

import dgl
import numpy as np
import torch
from dgl_sage import Sage
from torch import distributed, nn
from torch.nn import functional


def part(folder):
    stored = np.load(f"{folder}/graph.npz")
    indptr, indices = (torch.from_numpy(stored[name].astype(np.int64)) for name in ("indptr", "indices"))
    graph = dgl.graph(("csc", (indptr, indices, torch.empty(0, dtype=torch.long))), num_nodes=len(indptr) - 1)
    for name in ("x", "y", "train"):
        graph.ndata[name] = torch.from_numpy(stored[name])
    dgl.distributed.partition_graph(
        graph, "graph", 2, f"{folder}/parts", balance_ntypes=graph.ndata["train"], balance_edges=True
    )


def train(fanout, batch, hidden, epochs, classes):
    dgl.distributed.initialize(os.environ["DGL_IP_CONFIG"])  # a server never returns from here
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    graph = dgl.distributed.DistGraph("graph", part_config=os.environ["DGL_CONF_PATH"])
    nodes = dgl.distributed.node_split(graph.ndata["train"], graph.get_partition_book(), force_even=True)
    sampler = dgl.dataloading.NeighborSampler(fanout)
    loader = dgl.dataloading.DistNodeDataLoader(graph, nodes, sampler, batch_size=batch, shuffle=True, drop_last=False)
    widths = [graph.ndata["x"].shape[1], *[hidden] * (len(fanout) - 1), classes]
    model = nn.parallel.DistributedDataParallel(Sage(widths))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(epochs):
        distributed.barrier()
        begun = at = time.perf_counter()
        spent, seeds = {"sampling": 0.0, "features": 0.0, "computing": 0.0}, 0
        with model.join():
            for inputs, targets, blocks in loader:
                for name in spent:
                    if name == "features":
                        x, y = graph.ndata["x"][inputs], graph.ndata["y"][targets].long()
                    elif name == "computing":
                        optimizer.zero_grad()
                        functional.cross_entropy(model(blocks, x), y).backward()
                        optimizer.step()
                    now = time.perf_counter()
                    spent[name], at = spent[name] + now - at, now
                seeds += len(targets)
        distributed.barrier()
        print(json.dumps({"seconds": time.perf_counter() - begun, "seeds": seeds, **spent}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "part":
        part(sys.argv[2])
    else:
        train([int(k) for k in sys.argv[2].split(",")], *map(int, sys.argv[3:]))
