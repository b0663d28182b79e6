"""Each method gives every node a part, evenly; METIS cuts less, and balances several loads at once."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from partition.graphs import INSTALLED, communities, edges_of, graph_of

from isthmus.errors import InputError
from isthmus.kernels.native import core
from isthmus.partition import CutOptions, assign, metis, partition
from isthmus.partition import ldg as streaming
from isthmus.partition.adjacency import symmetric_csr
from isthmus.partition.ldg import ldg
from isthmus.partition.methods import enforceable, fill_empty
from isthmus.partition.metis import kway


def cut_share(graph, assignment):
    source, target = assignment[edges_of(graph)].T
    return float((source != target).mean())


def volume(graph, assignment):
    """Pairs (node, other part that reads it)."""
    edges = edges_of(graph)
    pairs = {(s, assignment[t]) for s, t in edges.tolist() if assignment[s] != assignment[t]}
    return len(pairs)


def imbalance(load, assignment, parts):
    sums = np.bincount(assignment, weights=load, minlength=parts)
    return sums.max() / sums.mean()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("method", INSTALLED)
def test_every_node_has_a_part_and_no_part_is_empty(method, parts, directed):
    graph = communities(directed=directed)
    part = assign(graph, parts, method, CutOptions())
    assert part.dtype == np.int32
    assert part.shape == (graph.num_nodes,)
    assert set(part) == set(range(parts))
    assert imbalance(np.ones(graph.num_nodes), part, parts) < (1.5 if method == "kaminpar" else 1.2)  # one load, a sum


@pytest.mark.parametrize("method", INSTALLED)
def test_as_many_parts_as_nodes(method):
    part = assign(graph_of([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)], 5), 5, method, CutOptions())
    assert sorted(part) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("parts", [0, -1, 11])
@pytest.mark.parametrize("method", INSTALLED)
def test_impossible_number_of_parts(method, parts):
    with pytest.raises(InputError, match="1 to 10 parts"):
        assign(graph_of([(0, 1)], 10), parts, method, CutOptions())


def test_unknown_names_are_answered_with_the_known(tmp_path):
    graph = graph_of([(0, 1)], 4)
    with pytest.raises(InputError, match="metis, kaminpar, ldg, bytegnn, blocks, random"):
        partition(graph, 2, "metos", out=tmp_path / "p")
    with pytest.raises(InputError, match="nodes, edges, train"):
        partition(graph, 2, balance=("vertices",), out=tmp_path / "p")
    with pytest.raises(InputError, match="cut, vol"):
        partition(graph, 2, objective="volume", out=tmp_path / "p")
    with pytest.raises(InputError, match="metis, ldg, given"):
        partition(graph, 2, order="rcm", out=tmp_path / "p")
    with pytest.raises(InputError, match="random does not use objective"):
        partition(graph, 2, "random", objective="vol", out=tmp_path / "p")
    assert not (tmp_path / "p").exists()


def test_blocks_and_random():
    graph = communities(100, groups=4)
    assert_array_equal(assign(graph, 4, "blocks", CutOptions()), np.repeat(np.arange(4), 25))
    first, again, other = (assign(graph, 4, "random", CutOptions(seed=seed)) for seed in (0, 0, 1))
    assert_array_equal(first, again)
    assert (first != other).any()
    assert_array_equal(np.bincount(first), [25] * 4)


@pytest.mark.parametrize(("method", "most"), [("metis", 0.25), ("ldg", 0.4)])
def test_communities_are_found(method, most):
    graph = communities(2000, groups=8, inside=0.9)
    share = cut_share(graph, assign(graph, 4, method, CutOptions()))
    assert share < most
    assert cut_share(graph, assign(graph, 4, "random", CutOptions())) > 0.7


def test_volume_objective_sends_fewer_rows():
    graph = communities(3000, groups=12, degree=14, inside=0.6, seed=2)
    by = {name: assign(graph, 6, "metis", CutOptions(objective=name)) for name in ("cut", "vol")}
    assert volume(graph, by["vol"]) < volume(graph, by["cut"])
    assert cut_share(graph, by["cut"]) < cut_share(graph, by["vol"])


@pytest.mark.parametrize("method", ["metis", "ldg"])
def test_several_loads_are_balanced_where_one_is_not_enough(method):
    graph = communities(2000, groups=4, inside=0.95, seed=4)
    group = assign(graph, 4, "metis", CutOptions(balance=("nodes",)))
    train = (group == 1)[:, None]  # all training nodes lie in one community
    graph = replace(graph, train_mask=train, val_mask=~train, test_mask=np.zeros_like(train))
    single = assign(graph, 4, method, CutOptions(balance=("nodes",)))
    several = assign(graph, 4, method, CutOptions(balance=("nodes", "edges", "train")))
    assert imbalance(train[:, 0], single, 4) > 2
    for load in (np.ones(2000), graph.degree, train[:, 0]):
        assert imbalance(load, several, 4) < 1.1


def test_edges_are_balanced_despite_hubs():
    rng = np.random.default_rng(0)
    dense = rng.integers(0, 200, (6000, 2))  # a dense corner
    sparse = rng.integers(200, 1600, (3000, 2))
    bridge = np.stack([rng.integers(0, 200, 200), rng.integers(200, 1600, 200)], 1)
    graph = graph_of(np.concatenate([dense, sparse, bridge]), 1600)
    nodes_only = assign(graph, 4, "metis", CutOptions(balance=("nodes",)))
    both = assign(graph, 4, "metis", CutOptions(balance=("nodes", "edges")))
    assert imbalance(graph.degree, nodes_only, 4) > 1.5
    assert imbalance(graph.degree, both, 4) < 1.1
    assert imbalance(np.ones(1600), both, 4) < 1.1


def test_loads_that_cannot_be_balanced_are_left_out():
    graph = communities()
    none = np.zeros((graph.num_nodes, 1), bool)
    few = none.copy()
    few[:2] = True
    graph = replace(graph, train_mask=few, val_mask=none)
    assert enforceable(graph, 4, ("nodes", "train", "val", "test")) == ("nodes", "test")
    assert enforceable(graph, 4, ("val",)) == ("nodes",)


def test_empty_parts_get_a_node_of_least_degree():
    part = fill_empty(np.array([0, 0, 0, 2, 2], np.int32), 4, np.array([5, 1, 3, 1, 1]))
    assert_array_equal(part, [0, 1, 3, 2, 2])  # the first of equals gives


@pytest.mark.skipif(core() is None, reason="the native core is not built here")
@pytest.mark.parametrize("chunk", [1 << 25, 500])
@pytest.mark.parametrize("parts", [2, 5, 40])
@pytest.mark.parametrize("tolerance", [0.05, 0.0001])  # the second cannot be held: parts overflow
def test_ldg_twins_agree(monkeypatch, tolerance, parts, chunk):
    monkeypatch.setattr(streaming, "CHUNK_EDGES", chunk)
    graph = communities(600, inside=0.7, seed=parts)
    weights = np.stack([np.ones(600, np.int64), graph.degree, graph.train_mask[:, 0]], 1).astype(np.int64)
    native, twin = (
        ldg(
            graph.indptr, graph.indices, parts, lambda rows: weights[rows], passes=3, tolerance=tolerance, native=native
        )
        for native in (True, False)
    )
    assert_array_equal(native, twin)


def test_ldg_reads_memory_mapped_rows(tmp_path):
    graph = communities()
    np.save(tmp_path / "indices.npy", graph.indices)
    mapped = replace(graph, indices=np.load(tmp_path / "indices.npy", mmap_mode="r"))
    assert_array_equal(assign(mapped, 3, "ldg", CutOptions()), assign(graph, 3, "ldg", CutOptions()))


def test_symmetric_csr_counts_directions():
    graph = graph_of([(0, 1), (1, 0), (2, 1), (3, 2)], 5, directed=True)
    indptr, indices, weights = symmetric_csr(graph.indptr, graph.indices)
    assert_array_equal(indptr, [0, 1, 3, 5, 6, 6])
    assert_array_equal(indices, [1, 0, 2, 1, 3, 2])
    assert_array_equal(weights, [2, 2, 1, 1, 1, 1])


def test_metis_sees_a_directed_graph_from_both_ends(monkeypatch):
    graph, seen = communities(directed=True), []
    monkeypatch.setattr(
        metis,
        "kway",
        lambda indptr, indices, *rest, **more: seen.append((indptr, indices)) or kway(indptr, indices, *rest, **more),
    )
    assign(graph, 2, "metis", CutOptions())
    ((indptr, indices),) = seen
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(indptr))
    pairs = set(zip(rows.tolist(), indices.tolist(), strict=True))
    assert pairs == {(t, s) for s, t in pairs}
    assert {(t, s) for s, t in edges_of(graph).tolist()} <= pairs


def test_metis_follows_edge_weights():
    square = graph_of([(0, 1), (1, 2), (2, 3), (3, 0)], 4)
    for heavy, together in (({(0, 1), (2, 3)}, (0, 1)), ({(1, 2), (0, 3)}, (1, 2))):
        weights = [10 if tuple(sorted(edge)) in heavy else 1 for edge in edges_of(square).tolist()]
        part = kway(square.indptr, square.indices, 2, edge_weights=np.array(weights))
        assert part[together[0]] == part[together[1]]
        assert_array_equal(np.bincount(part), [2, 2])


@pytest.mark.skipif("kaminpar" not in INSTALLED, reason="KaMinPar is an extra: pip install 'isthmus[kaminpar]'")
@pytest.mark.parametrize("directed", [False, True])
def test_kaminpar_cuts_as_little_as_metis(directed):
    graph = communities(nodes=800, inside=0.95, directed=directed)
    cut = {}
    for method in ("metis", "kaminpar"):
        part = assign(graph, 4, method, CutOptions(seed=1))
        source, target = edges_of(graph).T
        cut[method] = np.count_nonzero(part[source] != part[target])
        assert np.bincount(part, weights=1 + graph.degree / graph.degree.mean()).max() <= 1.1 * 2 * graph.num_nodes / 4
    assert cut["kaminpar"] <= 1.2 * cut["metis"]
    assert_array_equal(assign(graph, 4, "kaminpar", CutOptions(seed=1)), part)


def test_kaminpar_that_is_not_installed_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "kaminpar", None)
    with pytest.raises(InputError, match=r"KaMinPar is not installed: pip install 'isthmus\[kaminpar\]'"):
        assign(communities(), 2, "kaminpar", CutOptions())


def test_metis_refuses_what_does_not_fit(monkeypatch):
    graph = communities()
    monkeypatch.setattr(metis, "free_memory", lambda: 80 * graph.num_edges - 1)
    with pytest.raises(InputError, match=r"use --method kaminpar, which needs a quarter .*, or --method ldg"):
        kway(graph.indptr, graph.indices, 2)
    monkeypatch.setattr(metis, "free_memory", lambda: None)
    assert set(kway(graph.indptr, graph.indices, 2)) == {0, 1}
