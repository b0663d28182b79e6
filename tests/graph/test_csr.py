"""Edge list → CSR against a set of Python tuples."""

from __future__ import annotations

import numpy as np
import pytest

from isthmus.graph import csr


def literal(src, dst, n):
    rows = [set() for _ in range(n)]
    for j, i in zip(src.tolist(), dst.tolist(), strict=True):
        if i != j:
            rows[i].add(j)
    return [sorted(row) for row in rows]


@pytest.mark.parametrize("block", [3, 64, 1 << 24])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint16, np.uint64])
def test_rows_are_sorted_distinct_and_without_self_loops(monkeypatch, block, dtype):
    monkeypatch.setattr(csr, "BLOCK", block)  # block borders must not show
    draw = np.random.default_rng(1)
    src, dst = draw.integers(0, 30, (2, 400)).astype(dtype)
    made = csr.to_csr(csr.pack(src, dst), 30)
    want = literal(src, dst, 30)
    assert [made.indices[a:b].tolist() for a, b in zip(made.indptr[:-1], made.indptr[1:], strict=True)] == want
    assert made.indices.dtype == np.int32
    assert made.indptr.dtype == np.int64
    assert made.self_loops == int((src == dst).sum())
    assert made.duplicates == 400 - made.self_loops - sum(map(len, want))


def test_order_names_the_first_of_equal_edges(monkeypatch):
    monkeypatch.setattr(csr, "BLOCK", 2)
    src, dst = np.array([2, 0, 2, 1, 1]), np.array([1, 1, 1, 0, 1])
    made = csr.to_csr(csr.pack(src, dst), 3, keep_order=True)
    assert made.indices.tolist() == [1, 0, 2]
    assert made.order.tolist() == [3, 1, 0]


def test_symmetry_is_seen_and_the_lonely_edge_found(monkeypatch):
    monkeypatch.setattr(csr, "BLOCK", 16)
    draw = np.random.default_rng(2)
    keys = csr.pack(*draw.integers(0, 50, (2, 300)))
    both = csr.with_reverses(keys)
    assert csr.to_csr(both.copy(), 50).symmetric
    made = csr.to_csr(np.concatenate([both, csr.pack(np.array([50]), np.array([7]))]), 51)
    assert not made.symmetric
    assert csr.missing_reverses(made) == (1, 50, 7)


def test_nodes_without_edges_have_empty_rows():
    made = csr.to_csr(csr.pack(np.array([4, 1]), np.array([1, 4])), 7)
    assert made.indptr.tolist() == [0, 0, 1, 1, 1, 2, 2, 2]
