"""The cover cut on disk: every cut edge is served, by as few rows as any exchange needs, and the book counts them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from partition.graphs import communities, graph_of

from isthmus.errors import InputError
from isthmus.kernels import Csr, vertex_cover
from isthmus.partition import Book, own_part, partition
from isthmus.partition.cover import gathered_targets, halo_cover, lends
from isthmus.partition.fewest_rows import cover_rows


def halo_of(part) -> Csr:
    return Csr(torch.tensor(part.halo_indptr), torch.tensor(part.halo_indices), len(part.halo_nodes))


@pytest.mark.parametrize("directed", [False, True])
def test_every_cut_edge_is_served_by_the_fewest_rows(tmp_path, directed):
    graph = communities(inside=0.6, directed=directed)
    book = partition(graph, 3, out=tmp_path / "parts", cut="cover", objective="cut")
    edge = partition(graph, 3, out=tmp_path / "edge")
    fewest = 0
    for k in range(3):
        part, other = book.part(k), edge.part(k)
        assert part.cover is not None
        assert other.cover is None
        for name in ("nodes", "halo_nodes", "halo_indices", "send_rows"):  # the edge-cut is there as it is
            assert np.array_equal(getattr(part, name), getattr(other, name))
        halo, ptr = halo_of(part), part.halo_ptr.tolist()
        targets = gathered_targets(halo, ptr, torch.tensor(part.cover))
        rows, columns = halo.edge_rows.numpy(), part.halo_indices
        for q in range(3):
            of_owner = (columns >= ptr[q]) & (columns < ptr[q + 1])
            assert (part.cover[columns] | np.isin(rows, targets[q]))[of_owner].all()
            dense = torch.zeros(len(part.nodes), ptr[q + 1] - ptr[q], dtype=torch.bool)
            dense[rows[of_owner], columns[of_owner] - ptr[q]] = True
            indptr = torch.cat([torch.zeros(1, dtype=torch.long), dense.T.sum(1).cumsum(0)])
            fewest += sum(int(s.sum()) for s in vertex_cover(Csr(indptr, dense.T.nonzero()[:, 1].int(), len(dense))))
    q = book.quality
    assert q["volume"] == fewest == sum(q["scatter_rows"]) + sum(q["gather_rows"])
    assert fewest < edge.quality["volume"] == sum(edge.quality["scatter_rows"])
    assert sum(q["send_bytes_per_column"]) == sum(q["receive_bytes_per_column"]) == 4 * fewest


def test_a_star_over_two_parts_needs_one_row_each_way(tmp_path):
    """A hub in one part, its leaves in the other: the edge-cut sends the hub, and every leaf back."""
    graph = graph_of([(0, leaf) for leaf in range(1, 9)], 9)
    edge = partition(graph, 2, "blocks", out=tmp_path / "edge", order="given")
    cover = partition(graph, 2, "blocks", out=tmp_path / "cover", order="given", cut="cover")
    assert (edge.quality["volume"], cover.quality["volume"]) == (5, 2)
    assert cover.quality["scatter_rows"] == [1, 0]
    assert cover.quality["gather_rows"] == [0, 1]
    assert cover.quality["scatter_edges"] == [0, 4]  # the hub's row, to four leaves of the other part
    assert cover.quality["gather_edges"] == [0, 4]  # which make one sum of theirs for it


def test_no_edges_no_rows(tmp_path):
    book = partition(graph_of([], 6), 3, out=tmp_path / "parts", cut="cover")
    assert book.quality["volume"] == 0
    assert [len(book.part(k).cover) for k in range(3)] == [0, 0, 0]


def test_joined_parts_find_their_own_cover(tmp_path):
    book = partition(communities(), 4, out=tmp_path / "parts", cut="cover")
    assert own_part(book, 0, 4).cover is not None
    assert own_part(book, 0, 2).cover is None


def test_lending_evens_out():
    """Every pair moves a P-th of its difference: 90, 30 and 60 edges become 60 each."""
    loads = torch.tensor([90, 30, 60])
    moved = torch.stack([lends(loads, k) for k in range(3)])
    assert moved.tolist() == [[0, 20, 10], [0, 0, 0], [0, 10, 0]]
    assert (loads - moved.sum(1) + moved.sum(0)).tolist() == [60, 60, 60]


def test_what_is_lent_is_what_is_asked_where_there_is_a_choice():
    """Four single edges: each may be served from either end."""
    halo = Csr(torch.arange(5), torch.arange(4, dtype=torch.int32), 4)
    for lend in range(5):
        assert int((~halo_cover(halo, [0, 4], torch.tensor([lend]))).sum()) == lend


def test_unknown_cuts_are_refused(tmp_path):
    with pytest.raises(InputError, match="unknown cut 'corner': choose one of edge, cover, vertex"):
        partition(communities(), 2, out=tmp_path / "parts", cut="corner")


def test_a_cover_of_another_length_is_refused(tmp_path):
    folder = tmp_path / "parts"
    partition(communities(), 2, out=folder, cut="cover")
    from partition.test_book import replace_array

    replace_array(folder, "cover", np.ones(3, bool))
    with pytest.raises(InputError, match=r"part-0/cover\.npy does not have the .* rows that the book says"):
        Book.read(folder).part(0)


def test_of_several_cuts_the_one_with_the_fewest_rows_is_kept(tmp_path):
    graph = communities(inside=0.6)
    kept = partition(graph, 3, out=tmp_path / "kept", cut="cover")
    tried = [
        partition(graph, 3, out=tmp_path / f"{objective}{seed}", cut="cover", objective=objective, seed=seed)
        for objective, seed in (("cut", 0), ("vol", 0), ("cut", 2), ("vol", 2))
    ]
    assert kept.quality["volume"] <= min(book.quality["volume"] for book in tried)
    owner = np.empty(graph.num_nodes, np.int64)
    for k in range(3):
        owner[kept.part(k).nodes] = k
    assert cover_rows(graph, owner, 3) == kept.quality["volume"]
