"""The same epoch through DGL, for an interpreter that has it (DGL 2.1.0, torch 2.2.1, numpy 1.26, torchdata 0.7.1).

python benchmarks/dgl_peer.py GRAPH_FOLDER MODEL DROPOUT THREADS REPEATS     prints the median seconds of an epoch
"""

import json
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import dgl
import numpy as np
import torch
from dgl.nn import GraphConv, SAGEConv
from torch import nn
from torch.nn import functional

MODELS = {"sage": (3, 128), "gcn": (2, 64)}


class Model(nn.Module):
    def __init__(self, model, widths, dropout):
        super().__init__()
        make = (lambda a, b: SAGEConv(a, b, "mean")) if model == "sage" else (lambda a, b: GraphConv(a, b))
        self.convs, self.dropout = nn.ModuleList(make(a, b) for a, b in pairwise(widths)), dropout

    def forward(self, graph, x):
        for conv in self.convs[:-1]:
            x = functional.dropout(conv(graph, x).relu(), self.dropout, self.training)
        return self.convs[-1](graph, x)


def main():
    folder, name, dropout = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    threads, repeats = map(int, sys.argv[4:])
    torch.set_num_threads(threads)

    def read(key):
        return np.load(folder / f"{key}.npy")

    indptr, x, y = read("indptr"), torch.from_numpy(read("x")).float(), torch.from_numpy(read("y")).long()
    mask = torch.from_numpy(read("train_mask"))[:, 0]
    graph = dgl.graph(("csc", (indptr, read("indices").astype(np.int64), np.empty(0, np.int64))))
    if name == "gcn":
        graph = dgl.add_self_loop(graph)
    graph = graph.int().formats(["csc", "csr"])
    graph.create_formats_()
    layers, hidden = MODELS[name]
    model = Model(name, [x.shape[1], *[hidden] * (layers - 1), int(y.max()) + 1], dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    seconds = []
    for _ in range(repeats + 1):
        begun = time.perf_counter()
        model.train()
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(model(graph, x)[mask], y[mask]).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begun)
    print(json.dumps(median(seconds[1:])))


if __name__ == "__main__":
    main()
