"""Several parts on one worker: their join keeps the contract of a part, with workers in the place of parts."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from graphs import community_graph, cut, sparse_rows

from isthmus.errors import InputError
from isthmus.graph.graph import SparseRows
from isthmus.partition import Book, own_part, shares
from isthmus.partition.assemble import assemble

PARTS = 8


def edges_of(part):
    """(target, source, attributes) of every edge in original ids, whatever side it is on."""
    found = []
    for side, names in (("inner", part.nodes), ("halo", part.halo_nodes)):
        indptr, indices = getattr(part, f"{side}_indptr"), getattr(part, f"{side}_indices")
        attributes = getattr(part, f"{side}_edge_attr")
        targets = np.repeat(part.nodes, np.diff(indptr))
        found += [(t, s, *a) for t, s, a in zip(targets, names[indices], attributes, strict=True)]
    return found


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 7, 8])
@pytest.mark.parametrize("directed", [False, True])
def test_contract(tmp_path, workers, directed):
    graph = replace(community_graph(directed=directed), node_type=np.arange(120) % 3)
    book = cut(graph, PARTS, "random", tmp_path)
    parts = [own_part(book, worker, workers) for worker in range(workers)]
    assert sorted(np.concatenate([part.nodes for part in parts])) == list(range(120))
    whole = sorted(
        (t, int(graph.indices[e]), *graph.edge_attr[e])
        for t in range(120)
        for e in range(graph.indptr[t], graph.indptr[t + 1])
    )
    assert sorted(edge for part in parts for edge in edges_of(part)) == whole
    for worker, part in enumerate(parts):
        assert part.index == worker
        assert not set(part.nodes) & set(part.halo_nodes)
        assert len(set(part.halo_nodes)) == len(part.halo_nodes)
        assert set(part.halo_indices) == set(range(len(part.halo_nodes)))
        assert np.array_equal(part.degree, graph.degree[part.nodes])
        assert np.array_equal(part.halo_degree, graph.degree[part.halo_nodes])
        for name in ("x", "y", "train_mask", "val_mask", "test_mask", "node_type"):
            assert np.array_equal(getattr(part, name), getattr(graph, name)[part.nodes]), name
        for side in ("inner", "halo"):
            indptr, indices = getattr(part, f"{side}_indptr"), getattr(part, f"{side}_indices")
            assert indices.dtype == np.int32
            rows = [indices[first:last] for first, last in pairwise(indptr)]
            assert all((np.diff(row) > 0).all() for row in rows), "columns ascend in every row"
        for q, owner in enumerate(parts):
            read = part.halo_nodes[part.halo_ptr[q] : part.halo_ptr[q + 1]]
            sent = owner.send_rows[owner.send_ptr[worker] : owner.send_ptr[worker + 1]]
            assert np.array_equal(read, owner.nodes[sent]), "both ends of a link agree on its rows"


def test_sparse_rows(tmp_path):
    graph = community_graph()
    dense = np.where(graph.x > 0, graph.x, 0)
    part = own_part(cut(replace(graph, x=sparse_rows(dense)), 4, "random", tmp_path), 1, 2)
    assert isinstance(part.x, SparseRows)
    values = np.zeros((len(part.nodes), 10))
    values[np.repeat(np.arange(len(part.nodes)), np.diff(part.x.indptr)), part.x.indices] = part.x.data
    assert np.array_equal(values, dense[part.nodes])


def test_one_part_per_worker_stays_memory_mapped(tmp_path):
    book = cut(community_graph(), 4, "random", tmp_path)
    assert isinstance(own_part(book, 1, 4).x, np.memmap)
    alone = next(worker for worker, block in enumerate(shares(book, 3)) if len(block) == 1)
    assert isinstance(own_part(book, alone, 3).x, np.memmap)


def test_assembled_again(tmp_path):
    """The whole graph on one worker is the graph."""
    book = cut(community_graph(), PARTS, "metis", tmp_path)
    part, graph = own_part(book, 0, 1), assemble(book)
    assert len(part.halo_nodes) == len(part.send_rows) == len(part.halo_indices) == 0
    assert len(part.inner_indices) == graph.num_edges


def with_loads(book: Book, loads) -> Book:
    parts = [replace(part, inner_edges=load, halo_edges=0) for part, load in zip(book.parts, loads, strict=True)]
    return replace(book, parts=tuple(parts))


def test_shares_are_as_even_as_blocks_can_be(tmp_path):
    book = cut(community_graph(), PARTS, "random", tmp_path)
    draw = np.random.default_rng(3)
    for loads in (*(draw.integers(1, 50, PARTS).tolist() for _ in range(10)), [0] * PARTS, [0, 0, 0, 9, 0, 0, 0, 0]):
        for workers in range(1, PARTS + 1):
            blocks = shares(with_loads(book, loads), workers)
            assert len(blocks) == workers
            assert [k for block in blocks for k in block] == list(range(PARTS))
            assert all(len(block) for block in blocks)
            heaviest = max(sum(loads[k] for k in block) for block in blocks)
            for inside in combinations(range(1, PARTS), workers - 1):
                ends = [0, *inside, PARTS]
                other = max(sum(loads[a:b]) for a, b in pairwise(ends))
                assert heaviest <= other


def test_more_workers_than_parts(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    with pytest.raises(InputError, match=r"has 2 parts but 3 workers: use --workers 2 or fewer, or .* --parts 3"):
        shares(book, 3)
