"""ByteGNN's cut: blocks of what labelled nodes read, parts of blocks; and every native loop against its twin."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from partition.graphs import communities, graph_of

from isthmus.errors import InputError
from isthmus.graph import load
from isthmus.minibatch.forecast import expected_rows
from isthmus.partition import CutOptions, assign, partition
from isthmus.partition.bytegnn import ASSIGNMENTS, blocks, default_assignment, greedy, multilevel


def labelled(graph, share, seed=0):
    """The graph with that share of its nodes in the three sets, as many in each."""
    rng = np.random.default_rng(seed)
    role = rng.permutation(graph.num_nodes)[:, None] / graph.num_nodes
    masks = [(role >= a * share / 3) & (role < (a + 1) * share / 3) for a in range(3)]
    return replace(graph, train_mask=masks[0], val_mask=masks[1], test_mask=masks[2])


def path_of_ten():
    """0 - 1 - … - 7 and 8 - 9; labelled: 2 and 5."""
    mask = np.zeros((10, 1), bool)
    train, val = mask.copy(), mask.copy()
    train[2], val[5] = True, True
    pairs = [*((v, v + 1) for v in range(7)), (8, 9)]
    return replace(graph_of(pairs, 10), train_mask=train, val_mask=val, test_mask=mask)


def names(made):
    """The centre (or first node) of every node's block."""
    first = made.member[made.start[:-1]]
    smallest = np.array([members.min() for members in np.split(made.member, made.start[1:-1])])
    assert_array_equal(first, smallest)
    return [sorted(members.tolist()) for members in np.split(made.member, made.start[1:-1])]


def test_nodes_join_the_first_block_that_reaches_them():
    made = blocks.make_blocks(path_of_ten(), hops=1, most=10)
    assert names(made) == [[0], [1, 2, 3], [4, 5, 6], [7], [8, 9]]
    assert_array_equal(made.adds.sum(axis=1), [0, 1, 1, 0, 0])
    assert names(blocks.make_blocks(path_of_ten(), hops=2, most=10))[:2] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [8] in names(blocks.make_blocks(path_of_ten(), hops=2, most=1))


def test_of_blocks_that_arrive_together_the_smallest_centre_takes_the_node():
    graph = path_of_ten()
    train = np.zeros((10, 1), bool)
    train[[1, 3]] = True
    graph = replace(graph, train_mask=train, val_mask=~train & False)
    assert [0, 1, 2] in names(blocks.make_blocks(graph, hops=1, most=10))


def test_where_all_are_labelled_blocks_are_single_nodes():
    graph = labelled(communities(), 1.0)
    assert blocks.make_blocks(graph, hops=3, most=100).count == graph.num_nodes
    assert default_assignment(graph) == "greedy"
    assert default_assignment(labelled(graph, 0.05)) == "multilevel"


@pytest.mark.parametrize("assignment", ["multilevel", "greedy"])
@pytest.mark.parametrize("share", [0.06, 1.0])
def test_training_validation_and_test_nodes_are_shared_evenly(assignment, share):
    graph = labelled(communities(3000, groups=12), share)
    part = assign(graph, 3, "bytegnn", CutOptions(assignment=assignment))
    for mask in (graph.train_mask, graph.val_mask, graph.test_mask):
        counts = np.bincount(part[mask[:, 0]], minlength=3)
        assert counts.max() <= np.ceil(1.03 * counts.mean())


@pytest.mark.parametrize("where", ["", "?labelled=0.1"])
def test_batches_read_no_more_rows_of_others_than_with_metis(tmp_path, where):
    """Of a graph where 1.4 % of the nodes are labelled, anywhere or in a few communities."""
    graph = load(f"synthetic:papers100m@0.0002{where}")
    rows = {}
    for method in ("metis", "bytegnn"):
        book = partition(graph, 3, method, out=tmp_path / method, order="given")
        rows[method] = sum(expected_rows(book, 100, (10, 5)))
    assert rows["bytegnn"] <= rows["metis"]


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
@pytest.mark.parametrize("directed", [False, True])
def test_native_loops_and_twins_agree(monkeypatch, assignment, directed):
    graph = labelled(communities(300, directed=directed, seed=3), 0.2)
    options = CutOptions(assignment=assignment, passes=3)
    native = assign(graph, 3, "bytegnn", options)
    for module in (blocks, greedy, multilevel):
        monkeypatch.setattr(module, "core", lambda: None)
    assert_array_equal(assign(graph, 3, "bytegnn", options), native)


def test_as_published_is_algorithm_2_as_printed():
    """A literal version, block by block: CE / |P_j| (0 / 0 is 0) times BS, the first of the best."""
    graph = labelled(communities(200, seed=5), 1.0)
    sets = np.stack([graph.train_mask, graph.val_mask, graph.test_mask])[:, :, 0]
    share = sets.sum(1) / sets.sum()
    parts = [set() for _ in range(3)]
    for v in range(200):
        beside = set(graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist())
        scores = []
        for mine in parts:
            balance = 1 - sum(share[c] * sets[c][list(mine)].sum() / (sets[c].sum() / 3) for c in range(3))
            scores.append(len(beside & mine) / len(mine) * balance if mine else 0.0)
        parts[int(np.argmax(scores))].add(v)
    found = assign(graph, 3, "bytegnn", CutOptions(assignment="as-published"))
    assert [set(np.flatnonzero(found == k)) for k in range(3) if parts[k]] == [mine for mine in parts if mine]


def test_guards_keep_the_parts_even():
    graph = labelled(communities(1000, groups=10, seed=1), 1.0)
    even = {
        name: np.bincount(assign(graph, 4, "bytegnn", CutOptions(assignment=name)), minlength=4).max() / 250
        for name in ("greedy", "as-published")
    }
    assert even["greedy"] < 1.05 < even["as-published"]


def test_what_cannot_be_is_refused(tmp_path):
    graph = communities()
    with pytest.raises(InputError, match="multilevel, greedy, as-published"):
        CutOptions(assignment="best")
    with pytest.raises(InputError, match="hops must be at least 1"):
        CutOptions(hops=0)
    with pytest.raises(InputError, match="metis does not use assignment"):
        partition(graph, 2, "metis", assignment="greedy", out=tmp_path / "p")
