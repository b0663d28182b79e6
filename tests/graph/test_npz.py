"""The .npz form: what is read, and every way in which it can be wrong."""

from __future__ import annotations

import numpy as np
import pytest
from graph.small import RING, fields, neighbours

from isthmus.errors import InputError
from isthmus.graph import Graph, SparseRows, load


@pytest.fixture
def saved(tmp_path):
    def save(**changes):
        path = tmp_path / "ring.npz"
        np.savez(path, **fields(**changes))
        return path

    return save


def test_reads_the_documented_form(saved):
    graph = load(saved())
    assert neighbours(graph) == RING
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes, graph.num_splits) == (
        6,
        12,
        2,
        3,
        1,
    )
    assert graph.indices.dtype == np.int32
    assert graph.y.tolist() == [0, 1, 2, 0, 1, -1]
    assert graph.train_mask[:, 0].tolist() == [True, True, False, False, False, False]
    assert graph.symmetric
    assert graph.notes == ()
    assert graph.name == "ring"
    assert load(graph) is graph


def test_reads_sparse_rows_several_splits_and_extras(saved):
    masks = {name: np.stack([fields()[name]] * 3, axis=1) for name in ("train_mask", "val_mask", "test_mask")}
    sparse = {
        "x": None,
        "x_indptr": np.array([0, 1, 1, 2, 2, 2, 3]),
        "x_indices": np.array([4, 0, 1]),
        "x_data": np.array([1, 2, 3], np.float16),
        "x_shape": np.array([6, 5]),
    }
    graph = load(saved(**masks, **sparse, num_classes=np.int64(9), num_nodes=np.int64(6), train_mask_622=np.ones(6)))
    assert isinstance(graph.x, SparseRows)
    assert graph.x.shape == (6, 5)
    assert graph.x.dtype == np.float16
    assert graph.num_splits == 3
    assert graph.num_classes == 9


def test_reads_label_sets_node_types_and_edge_attributes(saved):
    edges = fields()["edge_index"]
    y = np.eye(6, 4)
    graph = load(saved(y=y, edge_attr=10 * edges[0] + edges[1], node_type=np.arange(6, dtype=np.int16)))
    assert graph.multilabel
    assert graph.y.dtype == np.uint8
    assert graph.num_classes == 4
    assert graph.node_type.tolist() == list(range(6))
    # the attribute says source and target, so it must have moved with its edge
    target = np.repeat(np.arange(6), np.diff(graph.indptr))
    assert graph.edge_attr.tolist() == (10 * graph.indices + target).tolist()


def test_mends_self_loops_and_duplicates_and_says_so(saved):
    edges = fields()["edge_index"]
    graph = load(saved(edge_index=np.concatenate([edges, edges[:, :4], [[3, 4], [3, 4]]], axis=1)))
    assert neighbours(graph) == RING
    assert graph.notes == ("4 duplicate edges merged", "2 self loops dropped (gcn and gat add their own)")


def test_duplicates_in_either_direction(saved):
    """Five of the ring's six edges, one of them three times, in both ways, and a self loop."""
    edges = np.array([[0, 1, 2, 3, 4, 1, 0, 3], [1, 2, 3, 4, 5, 0, 1, 3]])
    graph = load(saved(edge_index=edges), undirected=True)
    assert graph.num_edges == 10
    assert graph.notes == (
        "reverses added: 8 edges given, 10 in both directions",
        "2 duplicate edges merged (an edge and its reverse are the same)",
        "1 self loops dropped (gcn and gat add their own)",
    )


def test_one_direction_needs_a_decision(saved):
    path = saved(edge_index=fields()["edge_index"][:, :6], edge_attr=np.arange(6))
    with pytest.raises(InputError, match=r"6 edges have no reverse .first: 0 → 1 .*--undirected.*--directed"):
        load(path)
    both = load(path, undirected=True)
    assert neighbours(both) == RING
    assert both.symmetric
    assert both.edge_attr[both.indptr[1] : both.indptr[2]].tolist() == [0, 1]  # 0-1 and 2-1, whichever way
    kept = load(path, directed=True)
    assert neighbours(kept) == [[], [0], [1], [2], [3], [0, 4]]
    assert not kept.symmetric
    with pytest.raises(InputError, match="exclude each other"):
        load(path, undirected=True, directed=True)


def test_labels_that_do_not_count_from_0_are_said(saved):
    graph = load(saved(y=np.array([1, 2, 3, 4, 5, -1])))
    assert graph.num_classes == 6
    assert graph.notes == (
        "y has labels up to 5, hence 6 classes, but no node has label 0: labels count from 0, so subtract 1 if that is "
        "not meant",
    )
    assert "no node has label 2, 3: give num_classes" in load(saved(y=np.array([0, 1, 4, 4, 4, -1]))).notes[0]
    assert load(saved(y=np.array([1, 2, 3, 4, 5, -1]), num_classes=np.int64(6))).notes == ()


def test_parallel_edges_with_other_weights_are_said(saved):
    """0 → 1 three times, once with the same weight; the first one's stays."""
    edges = fields()["edge_index"]
    several = np.concatenate([edges, [[0, 0, 3], [1, 1, 3]]], axis=1)
    weights = np.concatenate([np.arange(12.0), [0.0, 7.0, 5.0]])
    graph = load(saved(edge_index=several, edge_attr=weights))
    assert graph.edge_attr[graph.indptr[1]] == 0
    assert "1 of them had other attributes than the same edge before them (first: 0 → 1)" in graph.notes[1]
    same = load(saved(edge_index=several, edge_attr=np.ones((15, 2))))
    assert not any("other attributes" in note for note in same.notes)


def test_which_weight_an_edge_has_with_undirected(saved):
    """As docs/data.md says: its own if it was given, else that of its reverse; the first of several."""
    edges, weights = np.array([[0, 1, 1, 2, 0], [1, 0, 2, 1, 5]]), np.array([10.0, 20, 30, 40, 50])
    graph = load(saved(edge_index=edges, edge_attr=weights), undirected=True)
    found = {}
    for target in range(6):
        for place in range(graph.indptr[target], graph.indptr[target + 1]):
            found[int(graph.indices[place]), target] = graph.edge_attr[place]
    assert found == {(0, 1): 10, (1, 0): 20, (1, 2): 30, (2, 1): 40, (0, 5): 50, (5, 0): 50}
    assert not any("other attributes" in note for note in graph.notes)
    twice = load(saved(edge_index=np.array([[0, 0], [1, 1]]), edge_attr=np.array([1.0, 2])), undirected=True)
    assert twice.edge_attr.tolist() == [1, 1]
    assert any("1 of them had other attributes" in note for note in twice.notes)


def row_with(value):
    x = fields()["x"].copy()
    x[4, 1] = value
    return x


def mask(*nodes, splits=None):
    out = np.zeros(6 if splits is None else (6, splits), bool)
    out[list(nodes)] = True
    return out


BAD = {
    "id too large": ({"edge_index": np.array([[0, 6], [6, 0]])}, "edge 1 has source 6, out of range for 6 nodes"),
    "negative id": ({"edge_index": np.array([[0, 1], [1, -1]])}, "edge 1 has target -1, out of range"),
    "float ids": ({"edge_index": np.array([[0.0, 1], [1, 0]])}, "dtype float64, expected integers"),
    "a sentinel": ({"y": np.array([0, 1, 0, 1, 0, 999999])}, "y of node 5 is 999,999: more classes than 6 nodes"),
    "no edge": ({"edge_index": np.zeros((2, 0), int)}, "no edge"),
    "no node": ({"x": np.zeros((0, 2))}, "no node"),
    "edges transposed": ({"edge_index": fields()["edge_index"].T}, r"shape \[12, 2\], expected \[2, E\]"),
    "NaN": ({"x": row_with(np.nan)}, "nan in row 4, column 1"),
    "Inf": ({"x": row_with(-np.inf)}, "-inf in row 4, column 1"),
    "flat x": ({"x": np.zeros(6)}, r"x has shape \[6\], expected \[N, F\]"),
    "complex x": ({"x": np.zeros((6, 2), complex)}, "unknown dtype complex128"),
    "text x": ({"x": np.full((6, 2), "a")}, "unknown dtype <U1"),
    "pickled x": ({"x": np.array([{}] * 6, object)}, "x is a pickled array"),
    "short y": ({"y": np.zeros(5, int)}, r"y has shape \[5\] but x has 6 rows"),
    "label below -1": ({"y": np.array([0, 0, -2, 0, 0, 0])}, "y of node 2 is -2"),
    "label too large": ({"num_classes": np.int64(2)}, "y of node 2 is 2 but there are 2 classes"),
    "label set of 2": ({"y": np.full((6, 3), 2)}, r"y\[0, 0\] is 2: multi-label y holds 0 and 1"),
    "label sets, wrong classes": ({"y": np.ones((6, 3)), "num_classes": np.int64(4)}, "3 columns but num_classes is 4"),
    "text y": ({"y": np.full(6, "a")}, "y has unknown dtype"),
    "no label at all": ({"y": np.full(6, -1)}, "no node has a label"),
    "overlap": ({"val_mask": mask(1)}, "train_mask and val_mask overlap in 1 nodes .first: node 1"),
    "no training node": ({"train_mask": mask()}, "no training node: mark"),
    "unlabelled in mask": ({"test_mask": mask(5)}, "test_mask has 1 nodes without a label .first: node 5"),
    "short mask": ({"val_mask": np.zeros(4, bool)}, r"val_mask has shape \[4\] but x has 6 rows"),
    "mask of ids": ({"train_mask": np.array([0, 1, 2, 3, 4, 5])}, "dtype int64, expected bool"),
    "splits disagree": ({"val_mask": mask(2, splits=2)}, r"have \[1, 2, 1\] splits"),
    "num_nodes disagrees": ({"num_nodes": np.int64(7)}, "num_nodes is 7 but x has 6 rows"),
    "num_nodes no number": ({"num_nodes": np.arange(3)}, "num_nodes is not one integer"),
    "edge_attr short": ({"edge_attr": np.zeros(3)}, "edge_attr has shape"),
    "edge_attr NaN": ({"edge_attr": np.r_[np.zeros(11), np.nan]}, "edge_attr has nan in row 11"),
    "node_type short": ({"node_type": np.zeros(3, int)}, "node_type has shape"),
    "no y": ({"y": None}, "has no y .there is: edge_index, test_mask, train_mask, val_mask, x"),
    "label inf": ({"y": np.array([0, 1, np.inf, 0, 0, 0])}, "y of node 2 is inf, not a class number"),
    "label 1e30": ({"y": np.array([0, 1, 1e30, 0, 0, 0])}, "y of node 2 is 1e.30, not a class number"),
    "label of 64 bits": ({"y": np.array([0, 2**64 - 1, 0, 0, 0, 0], np.uint64)}, "y of node 1 is 18446744073709551615"),
    "y without a column": ({"y": np.zeros((6, 0))}, r"y has shape \[6, 0\], no label at all"),
    "classes without end": ({"num_classes": np.int64(2**31 - 1)}, "num_classes is 2,147,483,647 for 6 nodes"),
    "edge_attr without a column": ({"edge_attr": np.zeros((12, 0))}, "no value at all: leave it out"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_with_a_remedy(saved, case):
    changes, message = BAD[case]
    with pytest.raises(InputError, match=message) as caught:
        load(saved(**changes))
    text = str(caught.value)
    assert "ring" in text
    assert "\n" not in text
    assert ": " in text.split("ring", 1)[1]  # what is wrong, then what to do


def test_second_split_without_training_node(saved):
    train = mask(0, 1, splits=2)
    train[:, 1] = False
    with pytest.raises(InputError, match="no training node of split 1"):
        load(saved(train_mask=train, val_mask=mask(2, splits=2), test_mask=mask(3, splits=2)))


SPARSE = {"x": None, "x_indptr": np.array([0, 1, 1, 2, 2, 2, 3]), "x_indices": np.array([4, 0, 1]),
          "x_data": np.ones(3), "x_shape": np.array([6, 5])}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_data": np.array([1, 2, np.nan])}, "nan in row 5, column 1"),
        ({"x_indices": np.array([4, 0, 5])}, "names column 5 of 5"),
        ({"x_indptr": np.array([0, 2, 1, 2, 2, 2, 3])}, "does not ascend"),
        ({"x_shape": np.array([7, 5])}, "does not fit 6 rows"),
        ({"x_indices": np.array([4, 0])}, "2 entries but x_data 3"),
        ({"x_shape": None}, "has no x_shape"),
        ({"x_shape": np.array([6, np.nan])}, "does not fit 6 rows"),
        ({"x_shape": np.array([6, 2**40])}, "x has 1,099,511,627,776 columns"),
        ({"x_shape": np.array([6, -5])}, "x has -5 columns"),
        ({"x_data": np.float32(1)}, "does not ascend"),
        ({"x_indptr": np.int64(0)}, "does not fit 0 rows"),
        ({"x_indptr": np.array([0, 2**63, 1, 2, 2, 2, 3], np.uint64)}, "does not ascend"),
    ],
)
def test_bad_sparse_rows(saved, change, message):
    with pytest.raises(InputError, match=message):
        load(saved(**(SPARSE | change)))


def test_truncated_damaged_or_foreign_files(saved, tmp_path):
    path = saved(x=np.random.default_rng(0).random((6, 500)))
    whole = path.read_bytes()
    for size in (0, 3, 10, len(whole) // 2, len(whole) - 5):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"truncated or damaged|not an \.npz file"):
            load(path)
    flipped = bytearray(whole)
    flipped[whole.index(b"x.npy") + 2000] ^= 0xFF  # inside the values of x: the zip still opens, the checksum fails
    path.write_bytes(flipped)
    with pytest.raises(InputError, match="damaged at x"):
        load(path)
    np.save(tmp_path / "plain.npy", np.zeros(3))
    (tmp_path / "plain.npy").rename(tmp_path / "plain.npz")
    with pytest.raises(InputError, match=r"not an \.npz file"):
        load(tmp_path / "plain.npz")


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "features", "classes", "splits"),
    [
        ("cora", 2_708, 10_556, 1_433, 7, 1),
        ("amazon-photo", 7_650, 238_162, 745, 8, 10),
        ("tolokers", 11_758, 1_038_000, 10, 2, 10),
        ("debian-deps", 63_436, 2_288_846, 1_000, 53, 1),
    ],
)
def test_real_graphs(datasets, name, nodes, edges, features, classes, splits):
    graph = load(datasets / f"{name}.npz")
    assert isinstance(graph, Graph)
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (nodes, edges, features)
    assert (graph.num_classes, graph.num_splits) == (classes, splits)
    assert graph.notes == ()
    assert graph.symmetric


def test_edge_weight_is_read_as_in_pyg(saved):
    weight = np.arange(12, dtype=np.float32)
    assert len(load(saved(edge_weight=weight)).edge_attr) == 12
    both = load(saved(edge_weight=weight, edge_attr=weight[:, None] + 1))
    assert "edge_weight is not read, since there is edge_attr" in both.notes
    assert both.edge_attr.min() == 1


def test_labels_that_are_nan_are_said(saved):
    graph = load(saved(y=np.array([0, 1, 2, 0, 1, np.nan], np.float32)))
    assert "1 label(s) are NaN: these nodes count as unlabelled" in graph.notes
    assert graph.y.tolist() == [0, 1, 2, 0, 1, -1]
