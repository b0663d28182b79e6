"""Kept rows: batches are the same with them, fewer rows are asked for, and the access list is used as Belady would."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import community_graph, cut

from isthmus.comm import Hub
from isthmus.errors import InputError
from isthmus.kernels import Csr
from isthmus.minibatch import BatchConfig, BatchPolicy, NodeData, batch_maker
from isthmus.minibatch.cache import CacheConfig, ListCache
from isthmus.minibatch.forecast import expected_rows
from isthmus.minibatch.vip import read_probability, row_chunks
from isthmus.partition import own_part
from isthmus.sample import Structure
from isthmus.shard.load import as_tensor


def counted(graph, book, cache, steps=30, **asked):
    """Hits and misses of all workers; every row of every batch is checked."""
    config, policy = BatchConfig(20, (3, 2), **asked), BatchPolicy(cache=cache)

    def work(transport):
        part = own_part(book, transport.rank, transport.size)
        data = NodeData(as_tensor(part.x), as_tensor(part.y), as_tensor(part.train_mask[:, 0]).nonzero().flatten())
        maker = batch_maker(book, config, policy, transport, data, seed=7)
        found = torch.zeros(2)
        for step in range(steps):
            batch = maker.make(step)
            assert torch.equal(batch.x, torch.from_numpy(graph.x)[batch.layers[0].nodes])
            found += torch.tensor([batch.ledger.cache_hits, batch.ledger.cache_misses])
        return found

    return torch.stack(Hub(book.num_parts).run(work)).sum(0).tolist()


@pytest.mark.parametrize("asked", [{}, {"structure": "owner"}, {"way": "together"}])
def test_caches_save_rows_and_change_none(tmp_path, asked):
    graph = community_graph(400, degree=4.0, seed=3)
    book = cut(graph, 2, "random", tmp_path)
    found = {order: counted(graph, book, CacheConfig(order, 0.2), **asked) for order in ("degree", "vip", "list")}
    assert len({hits + misses for hits, misses in found.values()}) == 1
    assert found["list"][1] < found["vip"][1] < sum(found["vip"])
    assert found["vip"][1] <= found["degree"][1]


def test_the_access_list_is_used_as_belady_would():
    """Steps read these nodes; room for two rows, the next three steps are known. Literally, one node at a time."""
    reads = [[1, 2, 3], [2, 4], [1, 5], [2, 3], [4, 1], [3], [2, 5], [1]]
    cache, kept = ListCache(torch.tensor([7, 8]), torch.tensor([[7.0], [8.0]]), torch.zeros(9).double()), {7, 8}
    for step, nodes in enumerate(reads):
        hits = (cache.find(torch.tensor(nodes)) >= 0).tolist()
        assert hits == [node in kept for node in nodes]
        coming = reads[step + 1 : step + 4]
        change = cache.learn(torch.tensor(nodes), [torch.tensor(c) for c in coming])
        if change is not None:
            cache.apply(change, torch.tensor(nodes).float().view(-1, 1))

        def next_use(node, coming=coming):
            return next((at for at, later in enumerate(coming) if node in later), 99)

        wanted = sorted(next_use(node) for node in {*kept, *nodes})[:2]
        kept = set(cache.nodes.tolist())
        assert sorted(map(next_use, kept)) == wanted
        assert cache.rows.flatten().tolist() == cache.nodes.tolist()


def test_probabilities_are_those_of_the_formula():
    draw = np.random.default_rng(1)
    adjacency = draw.random((9, 9)) < 0.3  # [v, u]: v reads u
    adjacency[4] = False
    pattern = Csr(
        torch.from_numpy(np.concatenate([[0], adjacency.sum(1).cumsum()])),
        torch.from_numpy(np.nonzero(adjacency)[1]).to(torch.int32),
        9,
    )
    p = seeds = draw.random(9)
    for fanout in (2, -1):
        share = np.minimum(1, (99 if fanout < 0 else fanout) / np.maximum(adjacency.sum(1), 1))
        left = np.array([np.prod([1 - p[v] * share[v] for v in range(9) if adjacency[v, u]]) for u in range(9)])
        p = 1 - (1 - p) * left
    found = read_probability(Structure(pattern), torch.from_numpy(seeds), (2, -1))
    np.testing.assert_allclose(found.numpy(), p, atol=1e-12)
    for edges in (1, 4, 100):
        chunks = list(row_chunks(pattern.indptr, edges))
        assert [first for first, _ in chunks] == [0, *(last for _, last in chunks[:-1])]
        assert chunks[-1][1] == 9


def test_expected_rows_are_those_that_batches_read(tmp_path):
    graph = community_graph(400, degree=4.0, seed=3)
    book = cut(graph, 2, "metis", tmp_path)
    hits, misses = counted(graph, book, CacheConfig("vip", 1), steps=60)  # of which every row is asked for, but one
    # Draws of nodes with common neighbours are not independent, and few nodes have many of those.
    assert sum(expected_rows(book, 20, (3, 2))) == pytest.approx((hits + misses) / 60, rel=0.2)


@pytest.mark.parametrize("wrong", [{"order": "luck"}, {"rows": -1.0}, {"window": 0}])
def test_refusals(wrong):
    with pytest.raises(InputError):
        CacheConfig(**wrong)
