"""Locality order gathers neighbours; quality figures equal those of a literal slow count."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from partition.graphs import communities, edges_of

from isthmus.partition import describe, locality_order, partition
from isthmus.partition.describe import as_dict


def mean_distance(graph, order):
    place = np.empty(graph.num_nodes, int)
    place[order] = np.arange(graph.num_nodes)
    source, target = place[edges_of(graph)].T
    return np.abs(source - target).mean()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("method", ["metis", "ldg"])
def test_neighbours_come_close(method, directed):
    graph = communities(2000, groups=20, inside=0.95, directed=directed)
    order = locality_order(graph.indptr, graph.indices, symmetric=not directed, order=method, block_nodes=100)
    assert_array_equal(np.sort(order), np.arange(2000))
    assert mean_distance(graph, order) < 0.4 * mean_distance(graph, np.arange(2000))


def test_given_order_and_single_block():
    graph = communities()
    assert_array_equal(locality_order(graph.indptr, graph.indices, order="given"), np.arange(400))
    order = locality_order(graph.indptr, graph.indices)
    assert (np.diff(graph.degree[order]) <= 0).all()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("method", ["random", "metis"])
def test_quality_against_a_literal_count(tmp_path, method, directed):
    graph = communities(150, groups=5, inside=0.7, directed=directed, splits=3)
    book = partition(graph, 4, method, out=tmp_path / "parts")
    owner = np.empty(150, int)
    for k in range(4):
        owner[book.part(k).nodes] = k

    cut, readers = 0, {node: set() for node in range(150)}
    edges = [0] * 4
    for source, target in edges_of(graph).tolist():
        edges[owner[target]] += 1
        if owner[source] != owner[target]:
            cut += 1
            readers[source].add(int(owner[target]))
    halo = [sum(k in reading for reading in readers.values()) for k in range(4)]
    sent = [sum(len(readers[node]) for node in range(150) if owner[node] == k) for k in range(4)]
    boundary = [sum(bool(readers[node]) for node in range(150) if owner[node] == k) for k in range(4)]
    inner = [int((owner == k).sum()) for k in range(4)]

    q = book.quality
    assert q["cut_edges"] == cut
    assert q["cut_share"] == pytest.approx(cut / graph.num_edges)
    assert q["volume"] == sum(len(reading) for reading in readers.values())
    assert q["halo_per_inner"] == pytest.approx([h / n for h, n in zip(halo, inner, strict=True)])
    assert q["boundary_share"] == pytest.approx([b / n for b, n in zip(boundary, inner, strict=True)])
    assert q["receive_bytes_per_column"] == [4 * h for h in halo]
    assert q["send_bytes_per_column"] == [4 * s for s in sent]
    assert q["balance"]["nodes"] == pytest.approx(max(inner) / (150 / 4))
    assert q["balance"]["edges"] == pytest.approx(max(edges) / (graph.num_edges / 4))
    for name, mask in (("train", graph.train_mask), ("val", graph.val_mask), ("test", graph.test_mask)):
        worst = 0.0
        for split in range(3):
            counts = [int(mask[owner == k, split].sum()) for k in range(4)]
            assert [row[split] for row in q["splits"][name]] == counts
            worst = max(worst, max(counts) / (sum(counts) / 4))
        assert q["balance"][name] == pytest.approx(worst)
    for k in range(4):
        size = sum(path.stat().st_size for path in (tmp_path / "parts" / f"part-{k}").iterdir())
        assert q["bytes"][k] == size


def test_as_dict_is_json(tmp_path):
    book = partition(communities(), 2, out=tmp_path / "parts")
    content = json.loads(json.dumps(as_dict(book)))
    assert content["quality"] == book.quality
    assert [part["inner"] for part in content["parts"]] == [part.inner for part in book.parts]
    assert "files" not in content["parts"][0]
    assert book.parts[0].files


def test_description_shows_the_table(tmp_path):
    from rich.console import Console

    graph = replace(communities(), name="towns")
    book = partition(graph, 3, out=tmp_path / "parts")
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(describe(book))
    text = console.export_text()
    assert "towns: 400 nodes" in text
    assert f"{book.quality['cut_share']:.1%}" in text
    for k, part in enumerate(book.parts):
        line = next(line for line in text.splitlines() if line.split()[:1] == [str(k)])
        assert line.split()[1:3] == [f"{part.inner:,}", f"{part.halo:,}"]
