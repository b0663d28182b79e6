"""A ten-node graph drawn by hand, split over two workers.

part 0: 0 1 2 3 4     part 1: 5 6 7 8 9
edges (both ways): 0-1 1-2 2-3 3-4 4-0 | 5-6 6-7 7-8 8-9 | 1-6 2-6 4-9
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from isthmus.comm import Hub
from isthmus.errors import InputError
from isthmus.graph.graph import Graph
from isthmus.local import LocalGraph, Policy, Savings, induced_graph
from isthmus.partition import partition

EDGES = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (5, 6), (6, 7), (7, 8), (8, 9), (1, 6), (2, 6), (4, 9)]


@pytest.fixture
def book(tmp_path):
    dense = np.zeros((10, 10), bool)
    for a, b in EDGES:
        dense[a, b] = dense[b, a] = True
    mask = np.zeros((10, 1), bool)
    graph = Graph(
        indptr=np.concatenate([[0], dense.sum(1).cumsum()]).astype(np.int64),
        indices=np.nonzero(dense)[1].astype(np.int32),
        x=np.eye(10, dtype=np.float64),
        y=np.arange(10),
        train_mask=~mask,
        val_mask=mask,
        test_mask=mask,
        num_classes=10,
    )
    return partition(graph, 2, "blocks", out=tmp_path / "parts", order="given")


def on_both(book, work, **options):
    def body(transport):
        return work(LocalGraph.from_part(book.part(transport.rank), transport, True, **options))

    return Hub(2).run(body)


HALO = Policy(Savings(cover=False))
X = torch.arange(10, dtype=torch.float64)[:, None] + 1  # node v has the row [v + 1]


def test_halo_rows_and_their_owners(book):
    zero, one = on_both(
        book, lambda g: (g.nodes.tolist(), g.halo_nodes.tolist(), g.halo(X[g.nodes]).flatten().tolist())
    )
    assert zero == ([0, 1, 2, 3, 4], [6, 9], [1, 2, 3, 4, 5, 7, 10])
    assert one == ([5, 6, 7, 8, 9], [1, 2, 4], [6, 7, 8, 9, 10, 2, 3, 5])


def test_sum_and_mean(book):
    zero, one = on_both(book, lambda g: (g.aggregate(X[g.nodes], "sum").flatten().tolist(), g.degree.tolist()))
    # Node 1 reads 0, 2 and 6: 1 + 3 + 7. Node 4 reads 3, 0 and 9: 4 + 1 + 10.
    assert zero == ([7, 11, 13, 8, 15], [2, 3, 3, 2, 3])
    # Node 6 reads 5, 7, 1 and 2: 6 + 8 + 2 + 3. Node 9 reads 8 and 4: 9 + 5.
    assert one == ([7, 19, 16, 18, 14], [1, 4, 2, 2, 2])
    means = on_both(book, lambda g: g.aggregate(X[g.nodes], "mean").flatten())
    torch.testing.assert_close(torch.cat(means)[1], torch.tensor(11 / 3, dtype=torch.float64))
    torch.testing.assert_close(torch.cat(means)[6], torch.tensor(19 / 4, dtype=torch.float64))


def test_gcn_weighs_by_degrees_of_the_whole_graph(book):
    got = torch.cat(on_both(book, lambda g: g.aggregate(X[g.nodes], "gcn"))).flatten()
    # Node 9 has degree 2, its neighbours 8 and 4 have degrees 2 and 3; each counts itself once more.
    want = 10 / 3 + 9 / 3 + 5 / (3 * 4) ** 0.5
    assert got[9].item() == pytest.approx(want, abs=1e-14)


@pytest.mark.parametrize("overlap", [True, False])
def test_gradients_go_home(book, overlap):
    """d(sum of all sums)/dx_v is the degree of v, part of it computed by the other worker."""

    def work(graph):
        x = X[graph.nodes].clone().requires_grad_()
        graph.aggregate(x, "sum").sum().backward()
        return x.grad.flatten().tolist(), graph.degree.tolist()

    for gradient, degree in on_both(book, work, policy=Policy(Savings(overlap=overlap))):
        assert gradient == degree


def test_gradients_of_halo_rows_go_home(book):
    def work(graph):
        x = X[graph.nodes].clone().requires_grad_()
        graph.halo(x).sum().backward()
        return x.grad.flatten().tolist()

    # Rows 1, 2 and 4 are also halo of worker 1, rows 6 and 9 of worker 0.
    assert on_both(book, work) == [[1, 2, 2, 1, 2], [1, 2, 1, 1, 2]]


def test_bytes_of_one_exchange(book):
    def work(graph):
        graph.aggregate(X[graph.nodes], "sum")
        return graph.runtime.transport.ledger.take().bytes

    halo = on_both(book, work, policy=HALO)
    assert halo == [{(0, "forward", 1): 3 * 8}, {(0, "forward", 0): 2 * 8}]


def test_a_cover_sends_sums_where_these_are_fewer(book):
    """Worker 0 sends 1 + 2 summed for node 6, and row 4 for node 9; worker 1 sends rows 6 and 9."""

    def work(graph):
        return graph.aggregate(X[graph.nodes], "sum"), graph.runtime.transport.ledger.take().rows

    (zero, sent), (one, back) = on_both(book, work)
    assert torch.cat([zero, one]).flatten().tolist() == [7, 11, 13, 8, 15, 7, 19, 16, 18, 14]
    sent, back = (sum(n for where, n in rows.items() if where[0] == 0) for rows in (sent, back))
    assert (sent, back) == (2, 2)


def test_bf16_rows_halve_the_bytes(book):
    def work(graph):
        out = graph.aggregate(X[graph.nodes].float(), "sum")
        return out.flatten().tolist(), graph.runtime.transport.ledger.take().bytes

    zero, one = on_both(book, work, rows_dtype=torch.bfloat16, policy=HALO)
    assert zero == ([7, 11, 13, 8, 15], {(0, "forward", 1): 3 * 2})  # small integers are exact in bf16
    assert one[1] == {(0, "forward", 0): 2 * 2}


def test_fixed_rows_travel_once(book):
    def work(graph):
        x = graph.runtime.fix(X[graph.nodes])
        first, second = graph.aggregate(x, "sum"), graph.aggregate(x, "sum")
        assert first is second
        assert graph.halo(x) is graph.halo(x)
        changed = graph.aggregate(x + 1, "sum")
        assert not torch.equal(first, changed)
        return sorted(graph.runtime.transport.ledger.take().bytes)

    sites = on_both(book, work, policy=HALO)[0]
    assert sites == [(0, "forward", 1), (2, "forward", 1), (4, "forward", 1)]


def test_view_of_some_nodes(book):
    """Check the graph without nodes 1 and 9: 6 keeps 5, 7 and 2; 4 keeps 3 and 0."""
    keep = torch.ones(10, dtype=torch.bool)
    keep[[1, 9]] = False

    def work(graph):
        view = induced_graph(graph, keep[graph.nodes])
        return view.nodes.tolist(), view.halo_nodes.tolist(), view.aggregate(X[view.nodes], "sum").flatten().tolist()

    zero, one = on_both(book, work)
    assert zero == ([0, 2, 3, 4], [6], [5, 11, 8, 5])
    assert one == ([5, 6, 7, 8], [2], [7, 17, 16, 8])


def test_wrong_rows_are_refused(book):
    with pytest.raises(InputError, match=r"rows of shape \(10, 1\).*5 inner nodes"):
        on_both(book, lambda graph: graph.aggregate(X, "sum"))
    with pytest.raises(InputError, match="gcn, mean or sum"):
        on_both(book, lambda graph: graph.aggregate(X[graph.nodes], "median"))
