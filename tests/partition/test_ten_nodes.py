"""A graph of ten nodes drawn by hand, cut in two by hand: every array of both parts is written out.

0 - 1 - 4 - 5 - 8        part 0: nodes 3 1 0 2 4 (in this order)
| / |       | / |        part 1: nodes 5 9 7 6 8
2 - 3 - 6 - 7 - 9        cut: 4-5, 3-6
"""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from partition.graphs import graph_of

from isthmus.partition.parts import Relabelling, write_parts

PAIRS = [(0, 1), (0, 2), (1, 2), (1, 3), (1, 4), (2, 3), (3, 6), (4, 5), (5, 7), (5, 8), (6, 7), (7, 8), (7, 9), (8, 9)]
ORDER = [np.array([3, 1, 0, 2, 4]), np.array([5, 9, 7, 6, 8])]

EXPECTED = [
    {
        "nodes": [3, 1, 0, 2, 4],
        "halo_nodes": [5, 6],
        "halo_rows": [0, 3],  # of part 1
        "halo_ptr": [0, 0, 2],
        "send_rows": [0, 4],  # 3 and 4, in the order of part 1's halo
        "send_ptr": [0, 0, 2],
        "degree": [3, 4, 2, 3, 2],
        "halo_degree": [3, 2],
        "inner_indptr": [0, 2, 6, 8, 11, 12],
        "inner_indices": [1, 3, 0, 2, 3, 4, 1, 3, 0, 1, 2, 1],
        "halo_indptr": [0, 1, 1, 1, 1, 2],
        "halo_indices": [1, 0],
    },
    {
        "nodes": [5, 9, 7, 6, 8],
        "halo_nodes": [3, 4],
        "halo_rows": [0, 4],  # of part 0
        "halo_ptr": [0, 2, 2],
        "send_rows": [0, 3],  # 5 and 6
        "send_ptr": [0, 2, 2],
        "degree": [3, 2, 4, 2, 3],
        "halo_degree": [3, 2],
        "inner_indptr": [0, 2, 4, 8, 9, 12],
        "inner_indices": [2, 4, 2, 4, 0, 1, 3, 4, 2, 0, 1, 2],
        "halo_indptr": [0, 1, 1, 1, 2, 2],
        "halo_indices": [1, 0],
    },
]
DTYPES = {
    "nodes": "int64", "halo_nodes": "int64", "halo_ptr": "int64", "send_rows": "int32", "send_ptr": "int64",
    "degree": "int64", "halo_degree": "int64", "halo_rows": "int32", "inner_indptr": "int64", "inner_indices": "int32",
    "halo_indptr": "int64", "halo_indices": "int32",
}  # fmt: skip


@pytest.fixture
def ten(tmp_path):
    graph = graph_of(PAIRS, 10)
    return graph, write_parts(graph, Relabelling.of(ORDER), tmp_path / "parts", method="hand", options={})


@pytest.mark.parametrize("k", [0, 1])
def test_every_array(ten, k):
    graph, book = ten
    part = book.part(k)
    for name, values in EXPECTED[k].items():
        array = getattr(part, name)
        assert array.dtype == DTYPES[name], name
        assert_array_equal(array, values, err_msg=name)
    for name in ("x", "y", "train_mask", "val_mask", "test_mask"):
        assert_array_equal(getattr(part, name), getattr(graph, name)[ORDER[k]], err_msg=name)
        assert getattr(part, name).dtype == getattr(graph, name).dtype
    assert part.inner_edge_attr is part.halo_edge_attr is part.node_type is None


def test_book(ten):
    graph, book = ten
    assert book.ranges == (0, 5, 10)
    assert (book.nodes, book.edges, book.features, book.classes, book.splits) == (10, 28, 3, 3, 1)
    assert (book.cut, book.method, book.symmetric, book.multilabel) == ("edge", "hand", True, False)
    assert book.train == (int(graph.train_mask.sum()),)
    for part in book.parts:
        assert (part.inner, part.halo, part.inner_edges, part.halo_edges, part.boundary) == (5, 2, 12, 2, 2)


def test_quality(ten):
    _, book = ten
    q = book.quality
    assert (q["cut_edges"], q["volume"]) == (4, 4)
    assert q["cut_share"] == pytest.approx(4 / 28)
    assert q["halo_per_inner"] == q["boundary_share"] == [0.4, 0.4]
    assert q["balance"]["nodes"] == q["balance"]["edges"] == 1.0
    assert q["receive_bytes_per_column"] == q["send_bytes_per_column"] == [8, 8]


def test_arrays_are_mapped_not_read(ten):
    part = ten[1].part(0)
    assert isinstance(part.x, np.memmap)
    assert (part.x.mode, part.inner_indices.mode) == ("c", "r")  # who writes to rows writes to a copy
