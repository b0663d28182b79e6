"""The rows of each link and leg, counted from the files: as the book says, and within and between hosts."""

from __future__ import annotations

import numpy as np
import pytest
from partition.graphs import communities, graph_of

from isthmus.errors import InputError
from isthmus.partition import partition
from isthmus.partition.links import legs_of, messages


@pytest.mark.parametrize("options", [{}, {"cut": "cover"}, {"cut": "vertex"}, {"cut": "vertex", "method": "ebv"}])
@pytest.mark.parametrize("directed", [False, True])
def test_files_and_book_agree(tmp_path, options, directed):
    book = partition(communities(directed=directed), 4, out=tmp_path / "parts", **options)
    legs, q = legs_of(book), book.quality
    assert legs.both.sum() == q["volume"]
    assert legs.scatter.sum(axis=1).tolist() == q["scatter_rows"]
    assert legs.gather.sum(axis=1).tolist() == q["gather_rows"]
    assert (4 * legs.both.sum(axis=0)).tolist() == q["receive_bytes_per_column"]
    assert not np.diag(legs.both).any()
    summed = sum(part.inner_edges for part in book.parts) + sum(q["scatter_edges"]) + sum(q["gather_edges"])
    assert summed == book.edges
    for hosts in (1, 2, 4):
        sent = messages(book, hosts)
        assert sum(sent["inner_messages"]) + sum(sent["outer_messages"]) == q["volume"]
        assert (sum(sent["outer_messages"]) == 0) == (hosts == 1)
        assert (sum(sent["inner_messages"]) == 0) == (hosts == 4)
        assert sent["outer_rows"] <= sum(sent["outer_messages"])
    assert sent["outer_rows"] == q["volume"]  # a host for every part


def test_a_host_receives_a_row_once_and_adds_its_partial_sums(tmp_path):
    """A star, its hub alone on a host with one leaf: of a vertex-cut one row each way, of hosts − 1 = 1."""
    graph = graph_of([(0, leaf) for leaf in range(1, 12)], 12)
    book = partition(graph, 4, "ebv", out=tmp_path / "parts", cut="vertex", hosts=2)
    sent = messages(book, 2)
    assert book.parts[0].inner + book.parts[1].inner + book.parts[2].inner + book.parts[3].inner == 12
    assert sum(sent["outer_messages"]) == 4  # two mirrors of the hub on the other host, a row each way
    assert sent["outer_rows"] == 2
    by_leg = [[sum(rows) for rows in of_leg.values()] for of_leg in sent["by_leg"].values()]
    assert by_leg == [[2, 1], [2, 1]]  # to the other mirror of each host, and once to the other host


def test_a_path_over_two_hosts(tmp_path):
    """0-1 | 2-3 | 4-5 | 6-7, two parts per host: only the edge 3-4 crosses hosts, one row each way."""
    book = partition(graph_of([(k, k + 1) for k in range(7)], 8), 4, "blocks", out=tmp_path / "parts", order="given")
    assert messages(book, 2) == {
        "hosts": 2,
        "inner_messages": [1, 1, 1, 1],
        "outer_messages": [0, 1, 1, 0],
        "outer_rows": 2,
        "by_leg": {
            "scatter": {"inner": [2, 2], "outer": [1, 1]},
            "gather": {"inner": [0, 0], "outer": [0, 0]},
        },
    }
    with pytest.raises(InputError, match="4 parts cannot be on 5 hosts: give --hosts from 1 to 4"):
        messages(book, 5)
