"""The store gives the rows and neighbours of all parts, wherever they lie."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from graphs import community_graph, cut, sparse_rows

from isthmus.comm import Hub, Where, codec
from isthmus.errors import InputError, WorkerError
from isthmus.features.embedding import Embedding, EmbeddingConfig
from isthmus.features.server import StoreOptions
from isthmus.features.store import Store
from isthmus.partition import Book, shares
from isthmus.sample import NeighbourSampler, Structure

SAMPLER = NeighbourSampler((3, -1), seed=5)
GRAPH = community_graph()
GRAPH = replace(GRAPH, edge_attr=np.abs(GRAPH.edge_attr[:, 0]) + 0.1)
END = Where("end", "reduce", 0)


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    return cut(GRAPH, 4, "random", tmp_path_factory.mktemp("cut"))


def with_store(book, workers, options, work):
    """The result of work(store, transport) on every worker; ``book`` may be one for each."""

    def body(transport):
        own = book[transport.rank] if isinstance(book, list) else book
        store = Store(own, transport, options)
        try:
            found = work(store, transport)
            transport.all_reduce(torch.zeros(1), END)  # nobody leaves while others ask
            return found
        finally:
            store.close()

    return Hub(workers).run(body)


def alone(book: Book, parts: list[int], folder: Path) -> Book:
    """A copy with some of the parts."""
    shutil.copytree(book.folder, folder)
    for part in set(range(book.num_parts)) - set(parts):
        shutil.rmtree(folder / f"part-{part}")
    return Book.read(folder)


def everything(store, _):
    """All that a store has of some nodes, and where it came from."""
    ids = torch.from_numpy(np.random.default_rng(store.rank).permutation(120)[:50])
    handles = {name: store.pull(name, ids, 3) for name in ("x", "y", "train_mask", "nodes")}
    rows = {name: handle.wait() for name, handle in handles.items()}
    original = store.server.original[ids]
    for name in ("y", "train_mask"):
        assert np.array_equal(rows[name].numpy(), getattr(GRAPH, name)[original].reshape(rows[name].shape))
    assert torch.equal(rows["nodes"], original)
    drawn = [store.sample(ids, hop, 7, edges=True).wait() for hop in range(2)]
    weights = store.pull_edges("edge_attr", drawn[1].edges).wait()
    assert np.array_equal(weights.numpy(), GRAPH.edge_attr.astype(np.float32)[drawn[1].edges])
    whole = NeighbourSampler(SAMPLER.fanouts, seed=5)
    structure = Structure.of_graph(GRAPH)
    for hop, found in enumerate(drawn):
        expected = whole.expand(structure, original, 7, hop, edges=True)
        assert torch.equal(found.indptr, expected.indptr)
        assert torch.equal(store.server.original[found.neighbours.long()], expected.neighbours.long())
        assert torch.equal(found.edges, expected.edges)
        assert torch.equal(found.scale, expected.scale)
    return rows["x"], torch.from_numpy(GRAPH.x)[original], store.ledger


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_parts_on_this_machine_are_read_from_their_files(book, workers):
    options = StoreOptions("here", SAMPLER, edge_data=True)
    for rows, expected, ledger in with_store(book, workers, options, everything):
        assert torch.equal(rows, expected)
        assert not ledger.bytes
        assert bool(ledger.rows_local) == (workers > 1)


def test_parts_elsewhere_are_asked_from_their_owners(book, tmp_path):
    """Four parts of three workers, each on a machine that has its own parts alone."""
    copies = [alone(book, list(parts), tmp_path / f"{parts[0]}") for parts in shares(book, 3)]
    options = StoreOptions("here", SAMPLER, edge_data=True)
    for rows, expected, ledger in with_store(copies, 3, options, everything):
        assert torch.equal(rows, expected)
        assert ledger.rows_local == 0
        assert ledger.kinds["features"] > 0
        assert ledger.kinds["ids"] > 0


@pytest.mark.parametrize("bits", [16, 8])
def test_coded_rows(book, bits):
    options = StoreOptions("owner", SAMPLER, codec(bits), edge_data=True, files=False)
    for rows, expected, ledger in with_store(book, 2, options, everything):
        assert 0 < float((rows - expected).abs().max()) < 0.05
        assert ledger.bytes["x", "pull", 1 - int(("x", "pull", 0) in ledger.bytes)] < expected.numel() * 8


def test_sparse_rows_travel_sparse(tmp_path):
    dense = np.where(np.abs(GRAPH.x) > 0.8, GRAPH.x, 0)
    book = cut(replace(GRAPH, x=sparse_rows(dense)), 4, "random", tmp_path)

    def work(store, _):
        ids = torch.arange(120)
        rows = store.pull("x", ids).wait()
        (sent,) = [size for (name, _, _), size in store.ledger.bytes.items() if name == "x"]
        return np.array_equal(rows.numpy(), dense[store.server.original[ids]]), sent

    for equal, sent in with_store(book, 2, StoreOptions(files=False), work):
        assert equal
        assert sent < 60 * 10 * 8 / 2


def test_refusals(book):
    def work(store, _):
        with pytest.raises(InputError, match="the store has no 'z': use one of x, y"):
            store.pull("z", torch.tensor([1]))
        with pytest.raises(InputError, match="no sampler"):
            store.sample(torch.tensor([1]), 0)
        with pytest.raises(InputError, match="no embedding 'z'"):
            store.push("z", torch.tensor([1]), torch.ones(1, 1))
        peer = 1 - store.rank
        with pytest.raises(WorkerError, match="ask the owners of the others"):
            store.service.ask(peer, "pull x", 0, {"name": "x"}, [store.server.ranges[[store.rank]]]).wait(20)
        with pytest.raises(WorkerError, match="not asked for 'sell'"):
            store.service.ask(peer, "sell x", 0, {}, [torch.tensor([0])]).wait(20)
        with pytest.raises(WorkerError, match="ids are int64"):
            store.service.ask(peer, "pull x", 0, {"name": "x"}, [torch.ones(2)]).wait(20)

    with_store(book, 2, None, work)


def table(store, config):
    own = store.server.original[int(store.server.ranges[store.rank]) : int(store.server.ranges[store.rank + 1])]
    store.add("emb", Embedding(config, own, 0, torch.float64, store.size))


def test_learnt_rows_are_those_after_all_pushes_of_the_step_before(book):
    """One worker is slow: the others get the rows of a step only when it has pushed, too."""

    def work(store, transport):
        table(store, EmbeddingConfig(3, 0.5, "sgd"))
        transport.all_reduce(torch.zeros(1), END)
        ids, seen = torch.arange(0, 120, 7), []
        for step in range(4):
            seen.append(store.pull("emb", ids, step).wait())
            if store.rank == 1:
                time.sleep(0.02)
            store.push("emb", ids[store.rank :], torch.full((len(ids) - store.rank, 3), float(step)), step).wait()
        return seen

    results = with_store(book, 3, None, work)
    for step in range(1, 4):
        change = results[0][step - 1] - results[0][step]
        readers = torch.tensor([min(i + 1, 3) for i in range(18)])[:, None]
        assert torch.allclose(change, 0.5 * (step - 1.0) * readers.double())
        for other in results[1:]:
            assert torch.equal(other[step], results[0][step])


def test_a_worker_that_does_not_push_is_named(book):
    def work(store, transport):
        table(store, EmbeddingConfig(2))
        transport.all_reduce(torch.zeros(1), END)
        ids = torch.tensor([int(store.server.ranges[store.rank])])
        if store.rank == 0:
            store.timeout = 0.1
            store.push("emb", ids, torch.ones(1, 2), 0)
            with pytest.raises(WorkerError, match="worker 1 did not push the gradients of step 0"):
                store.pull("emb", ids, 1)

    with_store(book, 2, None, work)


def test_hogwild_rows_change_as_gradients_arrive(book):
    def work(store, transport):
        table(store, EmbeddingConfig(2, 1.0, "sgd", hogwild=True))
        transport.all_reduce(torch.zeros(1), END)
        first = store.pull("emb", torch.tensor([0])).wait()
        transport.all_reduce(torch.zeros(1), END)
        for _ in range(store.rank + 1):
            store.push("emb", torch.tensor([0]), torch.ones(1, 2)).wait()
        transport.all_reduce(torch.zeros(1), END)
        return (first - store.pull("emb", torch.tensor([0])).wait()).tolist()

    assert all(np.allclose(change, 3.0) for change in with_store(book, 2, None, work))
