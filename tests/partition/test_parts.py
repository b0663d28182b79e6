"""Parts on disk hold exactly the graph they were made from, agree with each other, and are never half there."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from graphs import sparse_rows
from numpy.testing import assert_array_equal
from partition.graphs import INSTALLED, communities, edges_of, graph_of

from isthmus.errors import InputError
from isthmus.graph.graph import SparseRows
from isthmus.partition import Book, partition
from isthmus.partition import adjacency as chunking
from isthmus.partition.parts import Relabelling, write_parts


def dense(x):
    if not isinstance(x, SparseRows):
        return np.asarray(x)
    rows = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
    full = np.zeros(x.shape, x.dtype)
    full[rows, x.indices] = x.data
    return full


def reassemble(book):
    """(edges [E, 2] sorted by target then source, their attributes, node arrays by original id) out of all parts."""
    edges, attributes, rows = [], [], {}
    for k in range(book.num_parts):
        part = book.part(k)
        for side, ids in (("inner", part.nodes), ("halo", part.halo_nodes)):
            indptr, indices = getattr(part, f"{side}_indptr"), getattr(part, f"{side}_indices")
            edges.append(np.stack([ids[indices], np.repeat(part.nodes, np.diff(indptr))], 1))
            if getattr(part, f"{side}_edge_attr") is not None:
                attributes.append(getattr(part, f"{side}_edge_attr"))
            for row in range(len(indptr) - 1):
                assert (np.diff(indices[indptr[row] : indptr[row + 1]]) > 0).all()
        for name in ("x", "y", "train_mask", "val_mask", "test_mask", "degree", "node_type"):
            if getattr(part, name) is not None:
                rows.setdefault(name, []).append(dense(getattr(part, name)))
    edges = np.concatenate(edges)
    order = np.lexsort((edges[:, 0], edges[:, 1]))
    old = np.concatenate([book.part(k).nodes for k in range(book.num_parts)])
    back = np.argsort(old)
    return (
        edges[order],
        np.concatenate(attributes)[order] if attributes else None,
        {name: np.concatenate(values)[back] for name, values in rows.items()},
    )


def rich_graph(directed):
    graph = communities(300, directed=directed, splits=2, seed=3)
    rng = np.random.default_rng(1)
    return replace(
        graph,
        x=rng.standard_normal((300, 5)).astype(np.float16),
        y=rng.integers(0, 2, (300, 4)).astype(np.uint8),
        num_classes=4,
        edge_attr=rng.standard_normal((graph.num_edges, 2)),
        node_type=rng.integers(0, 3, 300).astype(np.int16),
    )


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("method", INSTALLED)
def test_round_trip(tmp_path, monkeypatch, method, directed):
    monkeypatch.setattr(chunking.row_chunks, "__defaults__", (97,))  # many chunks
    graph = rich_graph(directed)
    book = partition(graph, 3, method, out=tmp_path / "parts", block_nodes=20, seed=5)
    edges, attributes, rows = reassemble(book)
    assert_array_equal(edges, edges_of(graph))
    assert_array_equal(attributes, graph.edge_attr)
    for name in ("x", "y", "train_mask", "val_mask", "test_mask", "node_type"):
        assert rows[name].dtype == getattr(graph, name).dtype
        assert_array_equal(rows[name], getattr(graph, name))
    assert_array_equal(rows["degree"], graph.degree)
    assert book.symmetric is not directed
    assert book.multilabel
    assert book.splits == 2


@pytest.mark.parametrize("directed", [False, True])
def test_senders_and_readers_agree(tmp_path, directed):
    graph = communities(200, inside=0.6, directed=directed)
    book = partition(graph, 4, "random", out=tmp_path / "parts")
    parts = [book.part(k) for k in range(4)]
    for reader in parts:
        assert_array_equal(reader.halo_degree, graph.degree[reader.halo_nodes])
        for owner in parts:
            sent = owner.send_rows[owner.send_ptr[reader.index] : owner.send_ptr[reader.index + 1]]
            halo = reader.halo_nodes[reader.halo_ptr[owner.index] : reader.halo_ptr[owner.index + 1]]
            assert_array_equal(owner.nodes[sent], halo)
            assert (np.diff(sent) > 0).all()
            assert len(sent) == 0 or owner is not reader
        used = np.unique(reader.halo_indices)
        assert_array_equal(used, np.arange(len(reader.halo_nodes)))  # nothing is fetched in vain


def test_sparse_features(tmp_path):
    rng = np.random.default_rng(0)
    full = rng.standard_normal((120, 40)).astype(np.float32) * (rng.random((120, 40)) < 0.1)
    full[7] = 0
    graph = communities(120, groups=4, x=sparse_rows(full))
    book = partition(graph, 2, out=tmp_path / "parts")
    assert book.features == 40
    assert isinstance(book.part(0).x, SparseRows)
    assert_array_equal(reassemble(book)[2]["x"], full)


def test_empty_boundary_isolated_nodes_and_part_without_training(tmp_path):
    graph = graph_of([(0, 1), (1, 2), (3, 4), (4, 5)], 7, features=0)  # two paths and a lone node
    train = np.zeros((7, 1), bool)
    train[0] = True
    graph = replace(graph, train_mask=train, val_mask=~train, test_mask=np.zeros((7, 1), bool))
    labels = Relabelling.of([np.array([0, 1, 2]), np.array([3, 4, 5, 6])])
    book = write_parts(graph, labels, tmp_path / "parts", method="hand", options={})
    assert book.quality["volume"] == book.quality["cut_edges"] == 0
    assert book.quality["balance"]["train"] == 2.0
    assert book.quality["balance"]["test"] == 1.0
    for k in range(2):
        part = book.part(k)
        assert len(part.halo_nodes) == len(part.send_rows) == len(part.halo_indices) == 0
        assert part.x.shape == (len(part.nodes), 0)
    assert_array_equal(reassemble(book)[0], edges_of(graph))
    assert not book.part(1).train_mask.any()


def test_graph_without_edges(tmp_path):
    graph = graph_of([], 5)
    for method in INSTALLED:
        book = partition(graph, 2, method, out=tmp_path / method)
        assert sorted(part.inner for part in book.parts) == [2, 3]


def test_one_part_is_the_graph_in_locality_order(tmp_path):
    graph = communities(500, groups=10)
    book = partition(graph, 1, out=tmp_path / "parts", block_nodes=50)
    part = book.part(0)
    assert sorted(part.nodes) == list(range(500))
    assert len(part.halo_nodes) == 0
    assert_array_equal(reassemble(book)[0], edges_of(graph))


def test_same_seed_same_bytes(tmp_path):
    graph = communities()
    sums = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        book = partition(graph, 4, out=tmp_path / name, seed=seed)
        sums.append([entry["sha256"] for part in book.parts for entry in part.files.values()])
    assert sums[0] == sums[1] != sums[2]


def test_checksums_are_those_of_the_files(tmp_path):
    book = partition(communities(), 2, out=tmp_path / "parts")
    for k, info in enumerate(book.parts):
        names = {path.name for path in (tmp_path / "parts" / f"part-{k}").iterdir()}
        assert names == set(info.files)
        for name, entry in info.files.items():
            content = (tmp_path / "parts" / f"part-{k}" / name).read_bytes()
            assert entry == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert json.loads((tmp_path / "parts" / "book.json").read_text())["format"] == "isthmus-parts"


def test_overwrite_only_parts_and_only_when_asked(tmp_path):
    graph = communities()
    out = tmp_path / "parts"
    partition(graph, 2, "random", out=out)
    with pytest.raises(InputError, match="--overwrite"):
        partition(graph, 3, "random", out=out)
    assert Book.read(out).num_parts == 2
    assert partition(graph, 3, "random", out=out, overwrite=True).num_parts == 3
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter-1.tex").write_text("dear to me")
    with pytest.raises(InputError, match="not a parts folder"):
        partition(graph, 2, "random", out=other, overwrite=True)
    assert (other / "chapter-1.tex").read_text() == "dear to me"
    empty = tmp_path / "empty"
    empty.mkdir()
    assert partition(graph, 2, "random", out=empty).num_parts == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "parts", "thesis"]


def test_failure_leaves_nothing(tmp_path):
    graph = communities()

    def fail(stage, done, total):
        if stage == "write parts":
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        partition(graph, 2, "random", out=tmp_path / "parts", progress=fail)
    assert list(tmp_path.iterdir()) == []


KILLED = """
import sys, time
sys.path.insert(0, sys.argv[2])
from isthmus.partition import partition
from partition.graphs import communities

def wait(stage, done, total):
    if stage == "write parts":
        print("half", flush=True)
        time.sleep(60)

partition(communities(), 2, "random", out=sys.argv[1], progress=wait)
"""


def test_killed_run_leaves_no_folder_and_does_not_hinder_the_next(tmp_path):
    out, tests = tmp_path / "parts", os.path.dirname(os.path.dirname(__file__))
    with subprocess.Popen([sys.executable, "-c", KILLED, str(out), tests], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout.readline() == "half\n"
        concurrent = partition(communities(), 2, "random", out=tmp_path / "parts-2")  # another name: not swept
        left = [path for path in tmp_path.iterdir() if ".unfinished-" in path.name]
        assert len(left) == 1
        assert (left[0] / "part-0" / "nodes.npy").exists()
        run.send_signal(signal.SIGKILL)
    assert concurrent.num_parts == 2
    assert not out.exists()
    with pytest.raises(InputError, match="not a parts folder"):
        Book.read(left[0])
    start = time.time()
    assert partition(communities(), 2, "random", out=out).num_parts == 2
    assert time.time() - start < 30
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "parts-2"]
