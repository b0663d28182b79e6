"""Synthetic presets: sizes, seeds, structure, and that they are as hard as promised."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from isthmus.errors import InputError
from isthmus.files import scratch
from isthmus.graph import Graph, blocks, load
from isthmus.graph.presets import PRESETS
from isthmus.graph.synthetic import parse


def test_true_sizes():
    want = {
        "reddit": (232_965, 114_615_892, 602, 41, (153_431, 23_831, 55_703)),
        "products": (2_449_029, 123_718_280, 100, 47, (196_615, 39_323, 2_213_091)),
        "flickr": (89_250, 899_756, 500, 7, (44_625, 22_312, 22_313)),
        "papers100m": (111_059_956, 1_615_685_872, 128, 172, (1_207_179, 125_265, 214_338)),
    }
    for name, sizes in want.items():
        preset, seed = parse(f"{name}@1")
        assert (preset.nodes, preset.edges, preset.features, preset.classes, preset.split) == sizes
        assert seed == 0


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_at_a_small_scale(name):
    scale = 3_000 / PRESETS[name].nodes
    graph = load(f"synthetic:{name}@{scale}")
    preset = parse(f"{name}@{scale}")[0]
    n = graph.num_nodes
    assert n == preset.nodes
    assert abs(n - 3_000) <= 1
    assert abs(graph.num_edges - preset.edges) <= 0.01 * preset.edges
    rows = np.repeat(np.arange(n), graph.degree)
    assert (rows != graph.indices).all()
    keys = rows * n + graph.indices
    assert (np.diff(keys) > 0).all()  # ascending, hence distinct
    assert np.array_equal(np.sort(graph.indices.astype(np.int64) * n + rows), keys)  # symmetric
    assert graph.x.shape == (n, PRESETS[name].features)
    assert graph.x.dtype == np.float32
    assert np.isfinite(graph.x if isinstance(graph.x, np.ndarray) else graph.x.data).all()
    masks = np.stack([graph.train_mask, graph.val_mask, graph.test_mask])
    assert masks.sum(axis=0).max() == 1
    assert masks.sum(axis=(1, 2)).tolist() == list(preset.split)
    if name == "papers100m":  # labels as scarce as in the original
        assert ((graph.y >= 0) == masks.any(axis=0)[:, 0]).all()
    elif graph.multilabel:
        assert graph.y.shape == (n, PRESETS[name].classes)
        assert graph.y.any(axis=0).all()
    else:
        assert set(np.unique(graph.y)) == set(range(PRESETS[name].classes))


def same(a: Graph, b: Graph) -> bool:
    names = ("indptr", "indices", "x", "y", "train_mask", "val_mask", "test_mask")
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


def test_the_seed_decides_everything():
    assert same(load("synthetic:flickr@0.02?seed=3"), load("synthetic:flickr@0.02?seed=3"))
    a, b = load("synthetic:flickr@0.02?seed=3"), load("synthetic:flickr@0.02?seed=4")
    assert not np.array_equal(a.indices, b.indices)
    assert not np.array_equal(a.x, b.x)


def test_streams_do_not_depend_on_the_order_of_calls():
    rng = blocks.Streams(7)
    first = [rng("rows", 0).random(3), rng("rows", 1).random(3)]
    again = [rng("rows", 1).random(3), rng("rows", 0).random(3)][::-1]
    assert np.array_equal(first, again)
    assert len({x.tobytes() for x in (*first, rng("meet00", 0).random(3), blocks.Streams(8)("rows", 0).random(3))}) == 4


def homophily(graph: Graph) -> float:
    return float((np.repeat(graph.y, graph.degree) == graph.y[graph.indices]).mean())


def test_homophily_is_tunable():
    preset = PRESETS["products"]
    for wanted in (0.3, 0.6, 0.9):
        found = homophily(load(f"synthetic:products@0.01?homophily={wanted}"))
        assert abs(found - (1 - preset.far) * wanted) < 0.06


def test_degrees_follow_a_power_law_and_ids_say_nothing():
    graph = load("synthetic:products@0.02")
    degree = graph.degree
    assert degree.max() > 40 * degree.mean()
    assert np.median(degree) < 0.8 * degree.mean()
    assert (degree == 0).sum() <= 0.001 * len(degree)
    # were ids in community order, most neighbours would be near by
    near = np.abs(np.repeat(np.arange(graph.num_nodes), degree) - graph.indices) < graph.num_nodes // 20
    assert 0.08 < near.mean() < 0.12


def mean_of_neighbours(graph: Graph, x: torch.Tensor) -> torch.Tensor:
    offsets, sources = torch.from_numpy(graph.indptr[:-1]), torch.from_numpy(graph.indices.astype(np.int64))
    return torch.nn.functional.embedding_bag(sources, x, offsets, mode="mean")


def linear_score(graph: Graph, x: torch.Tensor) -> float:
    """Test accuracy or micro-F1 of a ridge regression, at the strength (and threshold) that suits the rows best."""
    train, test = (torch.from_numpy(mask[:, 0]) for mask in (graph.train_mask, graph.test_mask))
    y = torch.from_numpy(graph.y)
    wanted = (y if graph.multilabel else torch.nn.functional.one_hot(y, graph.num_classes)).float()
    x = torch.cat([x, torch.ones(len(x), 1)], dim=1)
    gram, right = x[train].T @ x[train], x[train].T @ wanted[train]
    scores = []
    for strength in (1.0, 30.0, 1000.0):
        out = x[test] @ torch.linalg.solve(gram + strength * torch.eye(len(gram)), right)
        if graph.multilabel:
            true = y[test].bool()
            for threshold in (0.3, 0.4, 0.5):
                found = out > threshold
                scores.append(float(2 * (found & true).sum() / (found.sum() + true.sum())))
        else:
            scores.append(float((out.argmax(1) == y[test]).float().mean()))
    return max(scores)


@pytest.mark.parametrize("spec", ["reddit@0.02", "products@0.02", "flickr@0.1", "yelp@0.02", "amazon@0.004"])
def test_features_alone_are_ten_points_worse_than_features_and_neighbours(spec):
    graph = load(f"synthetic:{spec}")
    x = torch.from_numpy(graph.x)
    once = mean_of_neighbours(graph, x)
    alone = linear_score(graph, x)
    together = linear_score(graph, torch.cat([x, once, mean_of_neighbours(graph, once)], dim=1))
    print(f"{spec}: features {alone:.3f}, with neighbours {together:.3f}")
    assert together >= alone + 0.10
    assert together < 0.97  # not so easy that recipes could not differ


def test_metis_finds_locality():
    pymetis = pytest.importorskip("pymetis")
    graph = load("synthetic:products@0.01")
    adjacency = pymetis.CSRAdjacency(graph.indptr, graph.indices.astype(np.int64))
    part = np.asarray(pymetis.part_graph(4, adjacency)[1])
    reader = part[np.repeat(np.arange(graph.num_nodes), graph.degree)]
    cut = reader != part[graph.indices]
    halo = len(np.unique(reader[cut] * graph.num_nodes + graph.indices[cut])) / graph.num_nodes
    assert 0.3 < halo < 0.6  # PSC-GCN table I: 271.3K halo for 612.3K inner nodes, 0.44


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("cora@1", "take one of reddit, products"),
        ("reddit@big", "scale 'big' is not a number"),
        ("reddit@-1", "scale '-1'"),
        ("reddit@nan", "scale 'nan'"),
        ("reddit@0.01?colour=3", "the options are seed, homophily, signal, dtype"),
        ("reddit@0.01?seed=x", "seed='x' is not of type int"),
        ("reddit@0.01?seed=-1", "seed -1 is out of range"),
        ("reddit@0.01?homophily=2", r"homophily must lie in \(0, 1\]"),
        ("reddit@0.01?homophily=0.001", "below that of random labels"),
        ("reddit@0.01?dtype=int8", "dtype must be"),
    ],
)
def test_bad_specs(spec, message):
    with pytest.raises(InputError, match=message):
        load(f"synthetic:{spec}")


def test_options_and_progress():
    seen = []
    graph = load("synthetic:flickr@0.01?dtype=float16&signal=0", progress=lambda *event: seen.append(event))
    assert graph.x.dtype == np.float16
    assert abs(float(graph.x.astype(np.float32).mean())) < 0.01
    assert {what for what, _, _ in seen} == {"drawing edges", "sorting edges", "drawing features"}
    assert seen[-1][1] == seen[-1][2]


def test_large_features_are_drawn_into_a_file(monkeypatch):
    in_memory = load("synthetic:flickr@0.01").x
    monkeypatch.setattr(scratch, "LARGE", 1)
    on_disk = load("synthetic:flickr@0.01").x
    assert isinstance(on_disk, np.memmap)
    assert not isinstance(in_memory, np.memmap)
    np.testing.assert_array_equal(on_disk, in_memory)
    monkeypatch.setattr(scratch.tempfile, "tempdir", "/proc/no/such/folder")  # nowhere to write: in memory then
    assert not isinstance(load("synthetic:flickr@0.01").x, np.memmap)
