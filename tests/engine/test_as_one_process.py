"""Norms, parallel edges and what edges carry, through PyG's convolutions: twenty steps as one process does them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from exactly import config, plainly, run
from graphs import community_graph, cut, npz, weighted_graph, whole_edges
from norm_cases import NORMS
from products import each_value, pairwise
from torch import nn
from torch.nn import functional

from isthmus import recipes
from isthmus.errors import InputError
from isthmus.graph import load

pyg = pytest.importorskip("torch_geometric.nn", reason="PyG is not installed: pip install 'isthmus[pyg]'")

TWENTY_STEPS = [name for name in NORMS if name not in ("SyncBatchNorm", "single element")]  # as BatchNorm1d


class Normed(nn.Module):
    """GCNConv is linear: under a cover cut its sums travel, not the rows alone."""

    def __init__(self, norm, dropout):
        super().__init__()
        self.first, self.norm, self.last, self.dropout = pyg.GCNConv(10, 6), norm, pyg.GCNConv(6, 4), dropout

    def forward(self, x, edge_index):
        x = functional.dropout(self.norm(self.first(x, edge_index)).relu(), self.dropout, self.training)
        return self.last(x, edge_index)


def assert_same(found, want):
    np.testing.assert_allclose(found[0], want[0], rtol=0, atol=1e-10)
    torch.testing.assert_close(found[1], want[1], rtol=0, atol=1e-8)


@pytest.mark.parametrize(*each_value(name=TWENTY_STEPS, workers=[3, 2, 4], where=["cover", "edge"], dropout=[0.0, 0.5]))
def test_norms(tmp_path, name, workers, where, dropout):
    """With dropout, which PyG draws otherwise, one worker is the one process."""
    torch.manual_seed(0)
    graph, model = replace(community_graph(), edge_attr=None), Normed(NORMS[name](), dropout).double()
    asked = config(cut=where)
    want = run(cut(graph, 1, "random", tmp_path), asked, model=model)[:2] if dropout else plainly(model, graph)
    assert_same(run(cut(graph, workers, "random", tmp_path), asked, model=model), want)


class Carrying(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = pyg.GATConv(10, 6, edge_dim=2), pyg.TransformerConv(6, 4, edge_dim=2)

    def forward(self, x, edge_index, edge_attr):
        return self.last(self.first(x, edge_index, edge_attr).relu(), edge_index, edge_attr)


class Dropped(nn.Module):
    """PyG's convolutions with the graph's weights, or with attributes, and dropout between them."""

    def __init__(self, first, last, dropout):
        super().__init__()
        self.first, self.last, self.dropout = first, last, dropout

    def forward(self, x, edge_index, edge_attr):
        x = functional.dropout(self.first(x, edge_index, edge_attr).relu(), self.dropout, self.training)
        return self.last(x, edge_index, edge_attr)


class Weighted(Dropped):
    def forward(self, x, edge_index, edge_weight):
        return super().forward(x, edge_index, edge_weight)


OF_EDGES = {
    "gcn": (1, None),
    "sage": (1, None),
    "gat": (1, None),
    "GCNConv": (1, lambda p: Weighted(pyg.GCNConv(10, 6), pyg.GraphConv(6, 4), p)),
    "GATConv": (2, lambda p: Dropped(pyg.GATConv(10, 6, edge_dim=2), pyg.TransformerConv(6, 4, edge_dim=2), p)),
}


@pytest.mark.parametrize(
    *each_value(name=list(OF_EDGES), workers=[4, 2, 3], where=["cover", "edge"], dropout=[0.5, 0.0])
)
def test_weights_and_edge_features(tmp_path, name, workers, where, dropout):
    torch.manual_seed(0)
    columns, make = OF_EDGES[name]
    graph, model = weighted_graph(directed=workers == 3, columns=columns), None if make is None else make(dropout)
    asked = config("gcn" if make else name, dropout, cut=where if name != "gat" else "edge")
    if make is None or dropout:
        want = run(cut(graph, 1, "random", tmp_path), asked, model=model if model is None else model.double())[:2]
    else:
        carried = {"edge_weight" if columns == 1 else "edge_attr": torch.from_numpy(graph.edge_attr)}
        want = plainly(model.double(), graph, **carried)
    assert_same(run(cut(graph, workers, "random", tmp_path), asked, model=model), want)


LOSSES = {
    "weights": "cross-entropy,weights=0.2/1/3/0.5,smoothing=0.2",
    "balanced": "cross-entropy,weights=balanced",
    "focal": "focal",
    "own": "own_losses:weighed",
    "bce": "bce,weights=1/2/3/4",
    "mse": "mse",
    "mae": "mae",
    "huber": "huber,delta=0.5",
}


@pytest.mark.parametrize(*each_value(name=list(LOSSES), workers=[2, 4, 3], where=["edge", "cover"], dropout=[0.0, 0.5]))
def test_losses(tmp_path, name, workers, where, dropout):
    """One worker is the one process; without dropout test_learning compares losses on skewed parts with torch."""
    graph = replace(community_graph(multilabel=name == "bce"), edge_attr=None)
    if name in ("mse", "mae", "huber"):
        graph = replace(graph, y=graph.x[:, :2] @ np.ones((2, 2)), num_classes=2)
    asked = config("sage", dropout, loss=LOSSES[name], cut=where)
    want = run(cut(graph, 1, "blocks", tmp_path), asked)[:2]
    assert_same(run(cut(graph, workers, "blocks", tmp_path), asked), want)


MODELS = {
    "edge_attr": Carrying,
    "GCN": lambda: pyg.GCN(10, 6, 2, 4),
    "SAGE": lambda: pyg.GraphSAGE(10, 6, 2, 4),
    "GAT": lambda: pyg.GAT(10, 6, 2, 4),
}


def with_parallel_edges(folder):
    """Half as many edges once more, between the same nodes, each with values of its own."""
    graph, draw = community_graph(), np.random.default_rng(0)
    edges = whole_edges(graph).numpy()
    edges = edges[:, edges[0] < edges[1]]
    edges = np.concatenate([edges, edges[:, draw.integers(edges.shape[1], size=edges.shape[1] // 2)]], 1)
    path = npz(folder / "multi.npz", edge_index=edges, edge_attr=draw.random((edges.shape[1], 2)))
    return replace(load(path, undirected=True, multi_edges="keep"), x=graph.x)


@pytest.mark.parametrize(*pairwise(name=list(MODELS), workers=[1, 3], method=["random", "metis"]))
def test_parallel_edges_that_are_kept(tmp_path, name, workers, method):
    torch.manual_seed(0)
    graph, model = with_parallel_edges(tmp_path), MODELS[name]().double()
    assert "parallel edges kept, each an edge of its own" in " ".join(graph.notes)
    carried = {"edge_attr": torch.from_numpy(graph.edge_attr)} if name == "edge_attr" else {}
    graph = graph if carried else replace(graph, edge_attr=None)
    want = plainly(model, graph, **carried)
    assert_same(run(cut(graph, workers, method, tmp_path), config(), model=model), want)


def test_parallel_edges_of_one_direction_have_no_reverse(tmp_path):
    path = npz(tmp_path / "uneven.npz", edge_index=np.array([[0, 0, 1], [1, 1, 0]]))
    with pytest.raises(InputError, match=r"1 edges have no reverse \(first: 0 → 1 without 1 → 0\)"):
        load(path, multi_edges="keep")
    assert load(path, multi_edges="keep", directed=True).num_edges == 3
    assert load(path, multi_edges="keep", undirected=True).num_edges == 4


class Compares(nn.Module):
    """A model that says which edges' attributes it is given; each edge carries the ids of its ends."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.GATConv(10, 4, edge_dim=2)

    def forward(self, x, edge_index, edge_attr):
        drawn = edge_index.runtime.drawn
        ends = torch.cat([drawn.nodes, drawn.halo_nodes])[edge_index.edge_index]
        assert torch.equal(edge_attr.long(), ends.t()), "attributes of other edges"
        return self.conv(x, edge_index, edge_attr / 100)


@pytest.mark.parametrize("name", ["bns", "boundary-edge", "drop-edge", "psc-gcn", "isthmus", "pipegcn"])
def test_drawn_edges_keep_their_attributes(tmp_path, name):
    graph = community_graph()
    graph = replace(graph, edge_attr=whole_edges(graph).t().double().numpy())
    recipe = recipes.find(name)
    run(cut(graph, 3, "random", tmp_path), config(steps=3), recipe.policy(recipe.settings({})), Compares().double())
