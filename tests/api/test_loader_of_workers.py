"""NeighborLoader on several workers: batches from a worker's store are those from a folder of all parts."""

from __future__ import annotations

import copy
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from graphs import community_graph, cut
from torch_geometric.nn import GraphSAGE

import isthmus
from isthmus import NeighborLoader
from isthmus.comm import Hub
from isthmus.errors import InputError
from isthmus.partition import Book

GRAPH = community_graph()
GRAPH = replace(GRAPH, edge_attr=np.abs(GRAPH.edge_attr[:, 0]).astype(np.float32) + 0.1)


@pytest.fixture(scope="module")
def books(tmp_path_factory):
    """The parts, and for each of two workers a copy with its own part alone."""
    folder = tmp_path_factory.mktemp("cut")
    book = cut(GRAPH, 2, "random", folder)
    for rank in range(2):
        shutil.copytree(book.folder, folder / f"machine-{rank}")
        shutil.rmtree(folder / f"machine-{rank}" / f"part-{1 - rank}")
    return book, [Book.read(folder / f"machine-{rank}") for rank in range(2)]


@pytest.mark.parametrize("weight_attr", [None, "edge_attr"])
def test_batches_are_those_of_all_parts(books, weight_attr):
    book, own = books
    load = partial(NeighborLoader, num_neighbors=[3, 2], weight_attr=weight_attr, batch_size=7, seed=1)

    def work(transport):
        with isthmus.Worker(own[transport.rank].folder, transport=transport, edge_weights="none") as worker:
            loader = load(worker, input_nodes="train")
            batches = list(loader)
            inputs = loader.input_nodes
            assert worker.store().ledger.kinds["features"] > 0
        return inputs, batches

    results = Hub(2).run(work)
    assert len(results[0][1]) == len(results[1][1])
    assert set(torch.cat([nodes for nodes, _ in results]).tolist()) == set(np.flatnonzero(GRAPH.train_mask[:, 0]))
    for nodes, batches in results:
        for found, expected in zip(batches, load(book, input_nodes=nodes), strict=True):
            assert set(found.keys()) == set(expected.keys())
            for name, value in expected:
                if isinstance(value, torch.Tensor):
                    assert torch.equal(found[name], value), name
                else:
                    assert found[name] == value, name


def test_training_is_that_of_one_process_with_both_batches(books):
    """Each worker takes a batch; their update is that of one process with both."""
    _, own = books
    halves = [torch.arange(0, 60, 2), torch.arange(1, 40, 2)]

    first = GraphSAGE(10, 8, 2, 4).double()

    def loss_of(net, batch):
        out = net(batch.x, batch.edge_index)[: batch.batch_size]
        return torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size])

    def work(transport):
        with isthmus.Worker(
            own[transport.rank].folder, transport=transport, dtype="float64", edge_weights="none"
        ) as worker:
            net = copy.deepcopy(first)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
            worker.prepare(net, optimizer)
            batches, losses = list(NeighborLoader(worker, [-1, -1], halves[worker.rank], batch_size=10)), []
            for turn in range(9):
                optimizer.zero_grad()
                if turn % 3 < len(batches):
                    batch = batches[turn % 3]
                    losses.append(worker.step(loss_of(net, batch), rows=batch.batch_size))
                else:  # a turn without a batch
                    losses.append(worker.step(sum(p.sum() for p in net.parameters()) * 0, rows=0))
            return losses

    distributed = Hub(2).run(work)
    net = copy.deepcopy(first)
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=0.5), []
    loaders = [list(NeighborLoader(GRAPH, [-1, -1], half, batch_size=10)) for half in halves]
    for turn in range(9):
        batches = [loader[turn % 3] for loader in loaders if turn % 3 < len(loader)]
        optimizer.zero_grad()
        rows = sum(batch.batch_size for batch in batches)
        loss = sum(loss_of(net, batch) * batch.batch_size / rows for batch in batches)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert distributed[0] == distributed[1]
    assert np.allclose(distributed[0], losses, rtol=0, atol=1e-12)


def test_refusals(books):
    _, own = books

    def work(transport):
        with isthmus.Worker(own[transport.rank].folder, transport=transport, edge_weights="none") as worker:
            with pytest.raises(InputError, match="leave num_workers out"):
                NeighborLoader(worker, [2], num_workers=2)
            with pytest.raises(InputError, match="copy all parts"):
                NeighborLoader(worker, [2], disjoint=True)
            with pytest.raises(InputError, match="already open"):
                worker.store(edge_data=False)

    Hub(2).run(work)
