"""Graph folders: what goes in comes out, memory-mapped; what is broken is refused."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from graph.small import fields

from isthmus.errors import InputError
from isthmus.files import sealed
from isthmus.files.array_file import ArrayFile
from isthmus.graph import SparseRows, load, save_graph


@pytest.fixture
def graph(tmp_path):
    np.savez(tmp_path / "ring.npz", **fields(edge_attr=np.arange(12.0), node_type=np.arange(6)))
    return load(tmp_path / "ring.npz")


def test_round_trip_is_memory_mapped(graph, tmp_path):
    back = load(save_graph(graph, tmp_path / "kept"))
    for name in ("indptr", "indices", "x", "y", "train_mask", "val_mask", "test_mask", "edge_attr", "node_type"):
        assert isinstance(getattr(back, name), np.memmap), name
        assert np.array_equal(getattr(back, name), getattr(graph, name))
        assert getattr(back, name).dtype == getattr(graph, name).dtype
    for name in ("num_classes", "name", "symmetric", "notes", "num_edges", "num_features"):
        assert getattr(back, name) == getattr(graph, name)


def test_round_trip_of_sparse_rows_and_label_sets(tmp_path):
    sparse = {"x": None, "x_indptr": np.arange(7), "x_indices": np.arange(6), "x_data": np.ones(6, np.float16)}
    np.savez(tmp_path / "a.npz", **fields(**sparse, x_shape=np.array([6, 9]), y=np.eye(6)))
    graph = load(tmp_path / "a.npz")
    back = load(save_graph(graph, tmp_path / "kept"))
    assert isinstance(back.x, SparseRows)
    assert back.x.shape == (6, 9)
    assert np.array_equal(back.x.indices, graph.x.indices)
    assert back.multilabel


def test_a_kept_directed_graph_cannot_be_made_undirected_silently(tmp_path):
    np.savez(tmp_path / "a.npz", **fields(edge_index=fields()["edge_index"][:, :6]))
    root = save_graph(load(tmp_path / "a.npz", directed=True), tmp_path / "kept")
    assert not load(root).symmetric
    with pytest.raises(InputError, match="original source"):
        load(root, undirected=True)


def test_nothing_is_overwritten_and_nothing_half_written(graph, tmp_path, monkeypatch):
    save_graph(graph, tmp_path / "kept")
    with pytest.raises(InputError, match="exists already"):
        save_graph(graph, tmp_path / "kept")
    before = set(tmp_path.iterdir())
    monkeypatch.setattr(ArrayFile, "append", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        save_graph(graph, tmp_path / "other")
    assert set(tmp_path.iterdir()) == before


def test_broken_folders(graph, tmp_path):
    root = save_graph(graph, tmp_path / "kept")
    about = json.loads((root / "graph.json").read_text())
    del about["sha256"]

    def refused(message, **changes):
        (root / "graph.json").write_text(json.dumps(sealed(about | changes)))
        with pytest.raises(InputError, match=message):
            load(root)

    refused("newer than", version=99)
    refused("does not describe a checked graph", checked=False)
    refused("shape", nodes=7)
    refused("shape", edges=11)
    (root / "graph.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        load(root)
    (root / "graph.json").write_text(json.dumps(about))
    (root / "x.npy").write_bytes((root / "x.npy").read_bytes()[:-8])
    with pytest.raises(InputError, match=r"x\.npy is damaged"):
        load(root)


def flip(path, place=-3):
    content = bytearray(path.read_bytes())
    content[place] ^= 64
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["indptr", "indices", "x", "y", "train_mask", "edge_attr"])
def test_a_flipped_bit_is_found(graph, tmp_path, name):
    root = save_graph(graph, tmp_path / "kept")
    flip(root / f"{name}.npy")
    with pytest.raises(InputError, match=rf"{name}\.npy is damaged \(its sha256"):
        load(root)


def test_a_flipped_bit_in_graph_json_is_found(graph, tmp_path):
    root = save_graph(graph, tmp_path / "kept")
    text = (root / "graph.json").read_text()
    (root / "graph.json").write_text(text.replace('"symmetric": true', '"symmetric": false'))
    with pytest.raises(InputError, match="has changed since it was written"):
        load(root)


def written_before_there_were_sums(graph, folder):
    root = save_graph(graph, folder)
    about = json.loads((root / "graph.json").read_text())
    (root / "graph.json").write_text(json.dumps({k: v for k, v in about.items() if k not in ("sums", "sha256")}))
    return root


def test_folders_without_sums_are_read_and_their_ranges_checked(graph, tmp_path):
    root = written_before_there_were_sums(graph, tmp_path / "kept")
    assert load(root).num_edges == 12
    for name, place, value, word in (
        ("indices", 0, 6, "has 6 in place 0, out of 0 to 5"),
        ("indptr", 1, 99, "does not ascend"),
        ("y", 2, 3, "has 3 in place 2"),
        ("y", 0, -1, "train_mask.npy has a node without a label"),
    ):
        array = np.load(root / f"{name}.npy")
        right, array[place] = array[place], value
        np.save(root / f"{name}.npy", array)
        with pytest.raises(InputError, match=word):
            load(root)
        array[place] = right
        np.save(root / f"{name}.npy", array)
    assert load(root).num_edges == 12


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"arrays": ["../../secret"]}, "arrays that are unknown"),
        ({"nodes": -1}, "sizes that no graph has"),
        ({"num_classes": 2**31 - 1}, "sizes that no graph has"),
        ({"nodes": [6]}, "nodes is a list, not a whole number"),
        ({"sums": {"x": 7}}, "sums.x is 7, not text"),
    ],
)
def test_fields_of_graph_json(graph, tmp_path, changes, word):
    root = written_before_there_were_sums(graph, tmp_path / "kept")
    about = json.loads((root / "graph.json").read_text())
    (root / "graph.json").write_text(json.dumps(about | changes))
    with pytest.raises(InputError, match=word):
        load(root)


def test_a_pipe_is_not_waited_for(graph, tmp_path):
    root = written_before_there_were_sums(graph, tmp_path / "kept")
    (root / "x.npy").unlink()
    os.mkfifo(root / "x.npy")
    with pytest.raises(InputError, match=r"x\.npy is not an ordinary file"):
        load(root)
