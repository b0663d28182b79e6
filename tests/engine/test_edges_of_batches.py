"""Mini-batches with what edges carry: weights in our own models, weights and attributes in PyG's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from exactly import assert_equal_runs, config, plainly, run
from graphs import cut, weighted_graph
from products import each_value
from runs import ASKED, SHAPE, trained
from torch import nn

from isthmus.comm import Hub
from isthmus.engine import PredictConfig, predict, sampled, train
from isthmus.errors import InputError
from isthmus.nn import Halo
from isthmus.recipes import find

pyg = pytest.importorskip("torch_geometric.nn", reason="PyG is not installed: pip install 'isthmus[pyg]'")
WAYS = [
    ("distdgl", {}, {}),
    ("distdgl", {}, {"structure": "owner"}),
    ("distdgl", {}, {"batch": "together"}),
    ("bytegnn", {"chunk": 5, "threads": 2}, {}),
    ("bytegnn", {"chunk": 5}, {"batch": "together"}),
]
DRAWS = [{}, {"draw": "weighted"}, {"draw": "labor"}, {"draw": "weighted", "replace": True}]


def policy(name="distdgl", **settings):
    recipe = find(name)
    return recipe.policy(recipe.settings(settings))


def small(model="sage", dropout=0.5, **changes):
    return config(model, dropout, **{"batch_size": 13, "fanout": "4,3,2", **changes})


@pytest.mark.parametrize(*each_value(model=["gcn", "sage", "gat"], workers=[2, 3, 4], way=WAYS, draw=DRAWS))
def test_any_number_of_workers_is_one_process(tmp_path, model, workers, way, draw):
    graph, (name, settings, asked) = weighted_graph(directed=model != "gcn"), way
    alone = run(cut(graph, 1, "random", tmp_path), small(model), policy(**draw))
    found = run(cut(graph, workers, "random", tmp_path), small(model, **asked), policy(name, **settings, **draw))
    assert_equal_runs(alone, found)


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_all_neighbours_of_all_training_nodes_are_the_weighted_full_graph(tmp_path, model):
    graph = weighted_graph()
    full = run(cut(graph, 2, "metis", tmp_path), config(model))
    everything = config(model, batch_size=1000, fanout="-1,-1,-1")
    book = cut(graph, 3, "random", tmp_path)
    assert_equal_runs(full, run(book, replace(everything, eval_fanout="-1,-1,-1"), policy()))
    assert not torch.allclose(full[0], run(book, replace(everything, edge_weights="none"), policy())[0], atol=1e-6)


def test_predictions_from_drawn_neighbours(tmp_path, monkeypatch):
    monkeypatch.setattr(sampled, "SIZE", 17)
    book, folder, _ = trained(weighted_graph(), 3, tmp_path, replace(ASKED, dtype="float64", model=SHAPE))

    def of(workers, fanout):
        asked = PredictConfig(str(folder), str(tmp_path / f"{workers}{fanout}.npy"), ("scores",), fanout=fanout)
        return np.load(Hub(workers).run(lambda transport: predict(book, asked, transport))[0]["files"][0])

    exact, drawn = of(2, None), of(1, "3,2")
    np.testing.assert_allclose(of(3, "-1,-1"), exact, rtol=0, atol=1e-6)  # they are written as float32
    np.testing.assert_allclose(of(3, "3,2"), drawn, rtol=0, atol=1e-6)
    assert not np.allclose(exact, drawn, atol=1e-3)


class Weighted(nn.Module):
    """Weights as they are for the one convolution, made of them for the other."""

    def __init__(self):
        super().__init__()
        self.first, self.last = pyg.GCNConv(10, 8), pyg.GraphConv(8, 4)

    def forward(self, x, edge_index, edge_weight=None):
        return self.last(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight.sqrt())


class Encoded(nn.Module):
    """Attributes that the model encodes once for all its layers."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(3, 2)
        self.first, self.last = pyg.GATConv(10, 6, edge_dim=2), pyg.TransformerConv(6, 4, edge_dim=2)

    def forward(self, x, edge_index, edge_attr):
        edge_attr = self.encode(edge_attr).relu()
        x = self.first(x, edge_index, edge_attr).relu()
        return self.last(x, edge_index, edge_attr=edge_attr)


class ByData(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = pyg.GraphConv(10, 8), pyg.GraphConv(8, 4)

    def forward(self, data):
        x = self.first(data.x, data.edge_index, data.edge_weight).relu()
        return self.last(x, data.edge_index, data.edge_weight)


class OfGraph(nn.Module):
    """Convolutions of a model that takes (graph, x) read the edges of their own layer."""

    def __init__(self):
        super().__init__()
        self.first = Halo(pyg.GATConv(10, 6, edge_dim=3), edge_attr=True)
        self.last = pyg.TransformerConv(6, 4, edge_dim=3)

    def forward(self, graph, x):
        x = self.first(graph, x).relu()
        rows = graph.pair(x)
        return self.last.forward(rows, graph.edge_index, graph.edge_attr)


MODELS = {
    "weights": (1, Weighted),
    "attributes": (3, Encoded),
    "data": (1, ByData),
    "Sequential": (1, lambda: pyg.Sequential("x, edge_index, edge_weight", [
        (pyg.GCNConv(10, 8), "x, edge_index, edge_weight -> x"), nn.ReLU(),
        (pyg.GraphConv(8, 4), "x, edge_index, edge_weight -> x")])),
    "PyG's GCN": (1, lambda: pyg.GCN(10, 8, 2, 4)),
    "PyG's GAT": (3, lambda: pyg.GAT(10, 8, 2, 4, edge_dim=3)),
    "of the graph": (3, OfGraph),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_pygs_models_get_what_drawn_edges_carry(tmp_path, name):
    """With all neighbours of all training nodes, plain PyG is the one process; else one worker is."""
    columns, make = MODELS[name]
    torch.manual_seed(0)
    graph, model = weighted_graph(directed=True, columns=columns), make().double()
    books = {parts: cut(graph, parts, "random", tmp_path) for parts in (1, 2, 3)}
    every = config(batch_size=1000, fanout="-1,-1")
    found = run(books[3], every, policy(), model)
    if name in ("data", "of the graph", "Sequential"):  # which plain PyG calls otherwise
        want = run(books[2], config(), None, model)[:2]
    else:
        carried = {"edge_weight" if columns == 1 else "edge_attr": torch.from_numpy(graph.edge_attr)}
        want = plainly(model, graph, **carried)
    for one, other in zip(found, want, strict=False):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)
    few = config(dropout=0.0, batch_size=13, fanout="4,3")
    alone = run(books[1], few, policy(), model)
    for workers, asked in ((2, {"structure": "owner"}), (3, {"batch": "together"})):
        assert_equal_runs(alone, run(books[workers], replace(few, **asked), policy(), model))


class Unweighted(Weighted):
    def forward(self, x, edge_index):
        return self.last(self.first(x, edge_index).relu(), edge_index)


class Early(nn.Module):
    """Reads edges before it is known of which layer."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.GraphConv(10, 4)

    def forward(self, graph, x):
        edges = graph.edge_index
        return self.conv.forward(graph.pair(x), edges)


@pytest.mark.parametrize(
    ("model", "fanout", "message"),
    [
        (Unweighted, "4,3", "--edge-weights none, a recipe that draws none"),
        (Early, "4", "after graph.halo or graph.pair"),
    ],
)
def test_refusals(tmp_path, model, fanout, message):
    book = cut(weighted_graph(), 1, "random", tmp_path)
    with pytest.raises(InputError, match=message):
        run(book, config(batch_size=13, fanout=fanout), policy(), model().double())


@pytest.mark.parametrize("model", ["gat", "sage"])
def test_that_weights_are_used_is_said(tmp_path, model):
    said, book = [], cut(weighted_graph(), 1, "random", tmp_path)
    train(book, small(model, steps=1), Hub(1).transport(0), policy=policy(), note=said.append)
    assert ["has edge weights: sums, means and degrees of" in line for line in said] == [True]
