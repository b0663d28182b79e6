"""NeighborLoader: batches in the form that PyG's documentation gives them, from data, graphs and parts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import community_graph
from torch_geometric.data import Data, HeteroData

from isthmus import NeighborLoader
from isthmus.errors import InputError
from isthmus.partition import partition

SIZES = [3, 2]


def some_data(nodes: int = 40, edges: int = 300) -> Data:
    """Random edges with self loops and parallel ones; every row tells whose it is."""
    of = torch.Generator().manual_seed(0)
    edge_index = torch.randint(nodes - 1, (2, edges), generator=of)  # the last node is isolated
    return Data(
        x=torch.arange(nodes).float()[:, None].repeat(1, 5),
        y=torch.arange(nodes),
        edge_index=edge_index,
        edge_attr=torch.arange(edges).float(),
        edge_weight=torch.rand(edges, generator=of),
        node_time=torch.randint(10, (nodes,), generator=of),
        edge_time=torch.randint(10, (edges,), generator=of),
        name="some",
    )


def check(data: Data, batch: Data, *, directed: bool = True) -> None:
    """Check what holds for every batch: rows and edges are those of the data."""
    assert torch.equal(batch.y, batch.n_id)
    assert torch.equal(batch.x[:, 0].long(), batch.n_id)
    assert batch.num_nodes == len(batch.n_id)
    assert batch.name == "some"
    if directed:
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        assert torch.equal(batch.edge_attr.long(), batch.e_id)


def test_a_batch_has_pygs_attributes():
    data, seeds = some_data(), torch.tensor([7, 39, 3, 20])
    loader = NeighborLoader(data, SIZES, seeds, batch_size=3, seed=1)
    assert len(loader) == 2
    first, last = list(loader)
    check(data, first)
    check(data, last)
    assert first.batch_size == 3
    assert last.batch_size == 1
    assert torch.equal(first.n_id[:3], seeds[:3])
    assert first.input_id.tolist() == [0, 1, 2]
    assert last.input_id.tolist() == [3]
    assert len(first.n_id.unique()) == len(first.n_id)
    assert sum(first.num_sampled_nodes) == first.num_nodes
    assert sum(first.num_sampled_edges) == first.num_edges
    assert len(first.num_sampled_nodes) == 1 + len(first.num_sampled_edges) == 3
    assert not {"batch", "seed_time"} & {*first.keys()}  # as in PyG, what is None is not there


def test_every_node_is_expanded_once_as_far_as_asked():
    data = some_data()
    degree = torch.bincount(data.edge_index[1], minlength=40)
    batch = next(iter(NeighborLoader(data, SIZES, torch.arange(5), batch_size=5)))
    begin, edge = 0, 0
    for hop, size in enumerate(SIZES):
        new, edges = batch.num_sampled_nodes[hop], batch.num_sampled_edges[hop]
        targets = batch.edge_index[1, edge : edge + edges]
        counts = torch.bincount(targets, minlength=batch.num_nodes)
        frontier = slice(begin, begin + new)
        assert torch.equal(counts[frontier], degree[batch.n_id[frontier]].clamp_max(size))
        assert counts.sum() == counts[frontier].sum()
        begin, edge = begin + new, edge + edges
    assert len(batch.e_id.unique()) == len(batch.e_id)


def test_epochs_differ_and_repeat_with_the_seed():
    data = some_data()

    def two_epochs(**options) -> list[list[int]]:
        loader = NeighborLoader(data, SIZES, batch_size=8, seed=4, **options)
        return [[e for batch in loader for e in batch.e_id.tolist()] for _ in range(2)]

    one, two = two_epochs(), two_epochs()
    assert one == two
    assert one[0] != one[1]
    assert two_epochs(num_workers=2) == one
    torch.manual_seed(3)
    first = NeighborLoader(data, SIZES, batch_size=8).node_sampler.subgraphs.sampler.seed
    torch.manual_seed(3)
    assert NeighborLoader(data, SIZES, batch_size=8).node_sampler.subgraphs.sampler.seed == first


def test_repeated_input_nodes_have_rows_of_their_own():
    data = some_data()
    seeds = torch.tensor([4, 9, 4])
    batch = next(iter(NeighborLoader(data, [2, 2], seeds, batch_size=3)))
    check(data, batch)
    assert torch.equal(batch.n_id[:3], seeds)
    sources = [batch.n_id[batch.edge_index[0, batch.edge_index[1] == place]].tolist() for place in (0, 2)]
    assert sources[0] == sources[1]
    assert sum(batch.num_sampled_nodes) == batch.num_nodes


def test_masks_all_nodes_and_full_neighbourhoods():
    data = some_data()
    mask = torch.zeros(40, dtype=torch.bool)
    mask[[2, 30]] = True
    batch = next(iter(NeighborLoader(data, [-1], mask, batch_size=2)))
    assert batch.n_id[:2].tolist() == [2, 30]
    assert batch.input_id.tolist() == [2, 30]  # of a mask, the nodes themselves
    expected = torch.isin(data.edge_index[1], torch.tensor([2, 30])).nonzero().flatten()
    assert torch.equal(batch.e_id.sort().values, expected)
    assert sum(batch.batch_size for batch in NeighborLoader(data, [1], batch_size=7)) == 40


@pytest.mark.parametrize("kind", ["bidirectional", "induced"])
def test_subgraph_types(kind):
    data = some_data()
    batch = next(iter(NeighborLoader(data, SIZES, torch.arange(4), subgraph_type=kind, batch_size=4, seed=2)))
    plain = next(iter(NeighborLoader(data, SIZES, torch.arange(4), batch_size=4, seed=2)))
    assert torch.equal(batch.n_id, plain.n_id)
    assert "num_sampled_nodes" not in batch
    pairs = set(zip(*batch.edge_index.tolist(), strict=True))
    if kind == "bidirectional":
        drawn = set(zip(*plain.edge_index.tolist(), strict=True))
        assert pairs == drawn | {(b, a) for a, b in drawn}
    else:
        check(data, batch)
        inside = torch.isin(data.edge_index, batch.n_id).all(0).nonzero().flatten()
        assert torch.equal(batch.e_id.sort().values, inside)


def test_disjoint_subgraphs_share_no_node():
    data = some_data()
    batch = next(iter(NeighborLoader(data, SIZES, torch.tensor([1, 2, 1]), disjoint=True, batch_size=3)))
    check(data, batch)
    assert batch.batch[:3].tolist() == [0, 1, 2]
    assert torch.equal(*batch.batch[batch.edge_index])
    trees = list(zip(batch.batch.tolist(), batch.n_id.tolist(), strict=True))
    assert len(set(trees)) == len(trees)
    assert sum(batch.num_sampled_nodes) == batch.num_nodes


@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("attr", ["node_time", "edge_time"])
def test_no_batch_looks_into_the_future(strategy, attr):
    data, until = some_data(), torch.tensor([0, 5, 9, 3])
    loader = NeighborLoader(
        data, [2, 2], torch.arange(4), until, time_attr=attr, temporal_strategy=strategy, batch_size=4
    )
    batch = next(iter(loader))
    check(data, batch)
    assert torch.equal(batch.seed_time, until)
    limit = until[batch.batch[batch.edge_index[1]]]
    time = batch.node_time[batch.edge_index[0]] if attr == "node_time" else batch.edge_time
    assert (time <= limit).all()
    for seed in range(4):
        into = (data.edge_index[1] == seed).nonzero().flatten()
        times = data[attr][data.edge_index[0, into]] if attr == "node_time" else data[attr][into]
        fit = times[times <= until[seed]].sort().values
        mine = time[batch.edge_index[1] == seed]
        assert len(mine) == min(2, len(fit))
        if strategy == "last":
            assert torch.equal(mine.sort().values, fit[-2:])


def test_times_of_the_nodes_themselves():
    data = some_data()
    batch = next(iter(NeighborLoader(data, [-1], torch.arange(6), time_attr="node_time", batch_size=6)))
    assert (batch.node_time[batch.edge_index[0]] <= data.node_time[batch.batch[batch.edge_index[1]]]).all()
    with pytest.raises(InputError, match="input_time"):
        next(iter(NeighborLoader(data, [-1], torch.arange(6), time_attr="edge_time", batch_size=6)))


@pytest.mark.parametrize("options", [{"weight_attr": "edge_weight"}, {"replace": True}, {"method": "labor"}])
def test_other_draws(options):
    data = some_data()
    batch = next(iter(NeighborLoader(data, [2, 2], torch.arange(10), batch_size=10, **options)))
    check(data, batch)
    if "replace" in options:
        counts = torch.bincount(batch.edge_index[1, : batch.num_sampled_edges[0]], minlength=10)
        degree = torch.bincount(data.edge_index[1], minlength=40)[:10]
        assert torch.equal(counts, torch.where(degree > 0, 2, 0))


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("weight_attr", [None, "edge_attr"])
def test_graph_and_parts_give_the_same_batches(parts, weight_attr, tmp_path):
    graph = community_graph(nodes=60, degree=7.0, directed=True)
    graph = type(graph)(**{**vars(graph), "edge_attr": np.arange(graph.num_edges, dtype=np.float32) + 1})
    partition(graph, parts, "random", out=tmp_path / "parts")
    options = {"input_nodes": "train", "batch_size": 7, "seed": 3, "weight_attr": weight_attr}
    of_graph, of_parts = NeighborLoader(graph, SIZES, **options), NeighborLoader(tmp_path / "parts", SIZES, **options)
    for one, other in zip(of_graph, of_parts, strict=True):
        for name in ("n_id", "e_id", "edge_index", "x", "y", "edge_attr", "train_mask", "input_id"):
            assert torch.equal(one[name], other[name]), name
        assert torch.equal(one.x, torch.from_numpy(graph.x[one.n_id]))
        assert torch.equal(one.edge_attr, one.e_id + 1.0)
        assert one.train_mask[: one.batch_size].all()


def test_a_transform_sees_every_batch():
    def double(batch: Data) -> Data:
        batch.x = 2 * batch.x
        return batch

    batch = next(iter(NeighborLoader(some_data(), [1], [3], transform=double, batch_size=1)))
    assert (batch.x[0] == 6).all()


def test_what_it_cannot_do_is_refused():
    data = some_data()
    for wrong in (
        {"subgraph_type": "x"},
        {"subgraph_type": "induced", "disjoint": True},
        {"input_time": torch.zeros(40)},
        {"time_attr": "name"},
        {"weight_attr": "edge_weight", "method": "labor"},
        {"temporal_strategy": "x", "time_attr": "node_time"},
        {"persistent_workers": True, "num_workers": 1},
    ):
        with pytest.raises(InputError):
            NeighborLoader(data, SIZES, **wrong)
    with pytest.raises(InputError, match="HeteroData"):
        NeighborLoader(HeteroData(), SIZES)
    with pytest.raises(InputError, match="edge type"):
        NeighborLoader(data, {("a", "b", "c"): [1]})
