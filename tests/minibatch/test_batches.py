"""Batches: the same edges in original ids for any number of workers, with the rows and labels of their nodes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from graphs import community_graph, cut

from isthmus.comm import Hub
from isthmus.kernels import random_keys, stream
from isthmus.minibatch import BatchConfig, BatchPolicy, NodeData, batch_maker
from isthmus.minibatch.seeds import SeedOrder, Shares
from isthmus.partition import own_part
from isthmus.shard.load import as_tensor

STEPS, SIZE = 50, 13


def edges_of(layer):
    """The edges of a layer as (target, source) in original ids, multiple edges as often as they were drawn."""
    targets, sources = layer.nodes[: layer.num_inner], torch.cat([layer.nodes, layer.halo_nodes])
    return torch.stack([targets[layer.edge_index[1]], sources[layer.edge_index[0]]], dim=1).tolist()


def drawn(graph, book, workers=None, steps=range(STEPS), **asked):
    """Per step: the edges of every layer, and the seed nodes with their labels, over all workers, each once."""
    config, policy = BatchConfig(SIZE, (3, 2), **asked), BatchPolicy()

    def work(transport):
        part = own_part(book, transport.rank, transport.size)
        data = NodeData(as_tensor(part.x), as_tensor(part.y), as_tensor(part.train_mask[:, 0]).nonzero().flatten())
        maker = batch_maker(book, config, policy, transport, data, seed=7)
        found = []
        for step in steps:
            batch = maker.make(step)
            original = batch.layers[0].nodes
            assert torch.equal(batch.x, torch.from_numpy(graph.x)[original])
            seeds = original[: len(batch.y)]
            assert torch.equal(batch.y, torch.from_numpy(graph.y)[seeds])
            found.append((batch.seeds, seeds.tolist(), [edges_of(layer) for layer in batch.layers]))
        return found

    results, joint = Hub(workers or book.num_parts).run(work), []
    for shares in zip(*results, strict=True):
        assert {share[0] for share in shares} == {sum(len(share[1]) for share in shares)}
        layers = [{tuple(edge) for share in shares for edge in share[2][k]} for k in range(2)]
        joint.append((sorted(seed for share in shares for seed in share[1]), layers))
    return joint


def test_every_number_of_workers_draws_the_same(tmp_path):
    graph = community_graph(directed=True)
    alone = drawn(graph, cut(graph, 1, "blocks", tmp_path))
    train = int(graph.train_mask.sum())
    assert [len(seeds) for seeds, _ in alone[:4]] == [SIZE, SIZE, train - 2 * SIZE, SIZE]  # an epoch, and the next
    assert sorted(seed for seeds, _ in alone[:3] for seed in seeds) == np.nonzero(graph.train_mask)[0].tolist()
    assert alone[0][0] != alone[3][0]
    for workers, method in ((2, "random"), (3, "metis"), (4, "blocks")):
        book = cut(graph, workers, method, tmp_path)
        assert drawn(graph, book, structure="here") == alone
        assert drawn(graph, book, structure="owner") == alone
        assert drawn(graph, book, way="together") == alone
    several = cut(graph, 5, "random", tmp_path)
    assert drawn(graph, several, 2, range(40, 50), way="together") == alone[40:]  # several parts each, and resumed
    assert drawn(graph, several, 3, range(40, 50), structure="owner") == alone[40:]


def test_the_order_of_seed_nodes_is_that_of_their_keys():
    """Literally: in epoch e, training nodes ascend by a random number that is a function of (seed, e, original id)."""
    original, nodes = torch.tensor([50, 3, 20, 11]), torch.tensor([0, 1, 2, 3])
    order = SeedOrder(nodes, original, 3, seed=5)
    for epoch in range(3):
        keys = {
            node: int(random_keys(stream(0x5EED, 5, epoch), torch.tensor([o])))
            for node, o in enumerate([50, 3, 20, 11])
        }
        wanted = sorted(keys, key=lambda node: keys[node])
        assert [*order.at(2 * epoch).tolist(), *order.at(2 * epoch + 1).tolist()] == wanted
    assert len({tuple(order.at(2 * epoch).tolist()) for epoch in range(20)}) > 5


@pytest.mark.parametrize("how", ["owner", "even", "position"])
def test_shares_cover_every_seed_node_once(how):
    ranges, nodes = torch.tensor([0, 4, 4, 30, 40]), torch.arange(0, 40, 3)
    seeds = nodes[torch.randperm(len(nodes), generator=torch.Generator().manual_seed(1))][:9]
    pieces = [Shares(how, ranges, nodes).of(seeds, worker) for worker in range(4)]
    assert sorted(torch.cat(pieces).tolist()) == sorted(seeds.tolist())
    if how == "owner":
        for (first, last), piece in zip(pairwise(ranges.tolist()), pieces, strict=True):
            assert all(first <= seed < last for seed in piece.tolist())
    if how == "position":
        assert max(map(len, pieces)) - min(map(len, pieces)) <= 1
    whole = [len(Shares("even", ranges, nodes).of(nodes, worker)) for worker in range(4)]
    assert max(whole) - min(whole) <= 1
