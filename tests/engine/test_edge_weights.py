"""Edge weights and attributes: any number of workers computes what one process does, and PyG where it has the model."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from exactly import assert_equal_runs, config, run
from graphs import community_graph, cut, npz, weighted_graph, whole_edges
from torch import nn

from isthmus import recipes
from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.errors import InputError
from isthmus.graph import load
from isthmus.local import LocalGraph
from isthmus.nn import GATConv, GCNConv, SAGEConv, distribute

pyg = pytest.importorskip("torch_geometric.nn", reason="PyG is not installed: pip install 'isthmus[pyg]'")


def dense(graph):
    matrix = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    matrix[np.repeat(np.arange(graph.num_nodes), graph.degree), graph.indices] = torch.from_numpy(graph.edge_attr)
    return matrix


def literally(conv, graph, x):
    """A convolution as its formula says, with dense matrices."""
    w, n = dense(graph), graph.num_nodes
    if isinstance(conv, GCNConv):
        scale = (w.sum(1) + 1).rsqrt()
        return scale[:, None] * (w + torch.eye(n)) * scale @ x @ conv.weight.t() + conv.bias
    if isinstance(conv, SAGEConv):
        mean = w / w.sum(1, keepdim=True).where(w.sum(1, keepdim=True) > 0, torch.ones(n, 1))
        return torch.cat([x, mean @ x], 1) @ conv.weight.t() + conv.bias
    rows = (x @ conv.weight.t()).unflatten(1, (conv.heads, -1))
    scores = (rows * conv.target).sum(-1)[:, None] + (rows * conv.source).sum(-1)[None]
    mask, own = (w > 0) | torch.eye(n, dtype=torch.bool), w + torch.eye(n)
    alpha = nn.functional.leaky_relu(scores, conv.slope).masked_fill(~mask[:, :, None], -torch.inf).softmax(1)
    return torch.einsum("ijh,jhd->ihd", alpha * own[:, :, None], rows).flatten(1) + conv.bias


@pytest.mark.parametrize("kind", [GCNConv, SAGEConv, lambda a, b: GATConv(a, b // 2, 2)])
@pytest.mark.parametrize("directed", [False, True])
def test_convolutions_by_their_formulas(tmp_path, kind, directed):
    torch.manual_seed(0)
    graph, conv = weighted_graph(directed), kind(10, 4).double()
    x = torch.from_numpy(graph.x)
    weights = torch.randn(120, 4, dtype=torch.float64)
    want = literally(conv, graph, x)
    (want * weights).sum().backward()
    book = cut(graph, 3, "random", tmp_path)

    def work(transport):
        mine, part = copy.deepcopy(conv), book.part(transport.rank)
        mine.zero_grad()
        local = LocalGraph.from_part(part, transport, not directed, dtype=torch.float64, weighted=True)
        out = mine(local, x[local.nodes])
        local.runtime.backward((out * weights[local.nodes]).sum())
        return local.nodes, out.detach(), [p.grad for p in mine.parameters()]

    nodes, outs, gradients = zip(*Hub(3).run(work), strict=True)
    torch.testing.assert_close(torch.cat(outs)[torch.cat(nodes).argsort()], want.detach(), rtol=0, atol=1e-10)
    for parts, one in zip(zip(*gradients, strict=True), conv.parameters(), strict=True):
        torch.testing.assert_close(sum(parts), one.grad, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("model", "dropout"), [("gcn", 0.5), ("sage", 0.0), ("gat", 0.5)])
@pytest.mark.parametrize("inductive", [False, True])
def test_runs_of_one_and_of_several_workers_agree(tmp_path, model, dropout, inductive):
    graph = weighted_graph(directed=model == "sage")
    asked = config(model, dropout, inductive=inductive)
    whole = cut(graph, 1, "random", tmp_path)
    alone = run(whole, asked)
    for parts in (2, 4):
        assert_equal_runs(run(cut(graph, parts, "random", tmp_path), asked), alone)
    plain = run(whole, replace(asked, edge_weights="none"))
    assert not torch.allclose(plain[0], alone[0], atol=1e-6)


@pytest.mark.parametrize("name", ["bns", "drop-edge", "psc-gcn", "pipegcn", "isthmus", "vanilla"])
def test_recipes_at_their_limits_are_exact(tmp_path, name):
    """Drawing everything, sending everything, at once: the weights of drawn edges are those of the graph."""
    all_of_it = {
        "bns": {"rate": 1.0},
        "drop-edge": {"rate": 1.0},
        "psc-gcn": {"rate": 1.0, "staleness": 0},
        "pipegcn": {"staleness": 0},
        "isthmus": {"rate": 1.0, "staleness": 0, "bits": 32, "bits_weights": 32, "delta": False, "precision": "fp32"},
        "vanilla": {},
    }[name]
    recipe = recipes.find(name)
    policy = recipe.policy(recipe.settings(all_of_it))
    graph, asked = weighted_graph(), config("gcn", 0.0)
    alone, together = (run(cut(graph, parts, "random", tmp_path), asked, policy) for parts in (1, 3))
    assert_equal_runs(together, alone)


class Weighted(nn.Module):
    def __init__(self, features=10, classes=4):
        super().__init__()
        self.first, self.last = pyg.GCNConv(features, 8), pyg.GraphConv(8, classes)

    def forward(self, x, edge_index, edge_weight=None):
        return self.last(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


class Attributed(nn.Module):
    def __init__(self, features=10, classes=4):
        super().__init__()
        self.first, self.last = pyg.GATConv(features, 4, edge_dim=2), pyg.TransformerConv(4, classes, edge_dim=2)

    def forward(self, x, edge_index, edge_attr):
        return self.last(self.first(x, edge_index, edge_attr).relu(), edge_index, edge_attr)


class Normless(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.conv = pyg.GCNConv(10, 4, **options)

    def forward(self, x, edge_index, edge_weight=None):
        return self.conv(x, edge_index, edge_weight)


class ByData(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.GraphConv(10, 4)

    def forward(self, data):
        return self.conv(data.x, data.edge_index, data.edge_weight)


CASES = {
    "edge_weight": (1, Weighted),
    "edge_attr": (2, Attributed),
    "improved": (1, lambda: Normless(improved=True)),
    "without self loops": (1, lambda: Normless(add_self_loops=False)),
    "without a norm": (1, lambda: Normless(normalize=False)),
    "PyG's GCN": (1, lambda: pyg.GCN(10, 8, 2, 4)),
    "PyG's GAT": (2, lambda: pyg.GAT(10, 8, 2, 4, edge_dim=2)),
    "Sequential": (1, lambda: pyg.Sequential("x, edge_index, edge_weight", [
        (pyg.GCNConv(10, 8), "x, edge_index, edge_weight -> x"), nn.ReLU(),
        (pyg.GraphConv(8, 4), "x, edge_index, edge_weight -> x")])),
    "forward(data)": (1, ByData),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_edges_carry_is_passed_by_name(tmp_path, name):
    columns, make = CASES[name]
    torch.manual_seed(0)
    graph, model = weighted_graph(columns=columns), make().double()
    x, y = torch.from_numpy(graph.x), torch.from_numpy(graph.y)
    carried = {"edge_weight" if columns == 1 else "edge_attr": torch.from_numpy(graph.edge_attr)}
    plain = copy.deepcopy(model)
    optimizer, rows, want = torch.optim.Adam(plain.parameters(), lr=0.01), torch.from_numpy(graph.train_mask[:, 0]), []
    for _ in range(5):
        optimizer.zero_grad()
        if name == "forward(data)":
            out = plain.conv(x, whole_edges(graph), carried["edge_weight"])
        elif name == "Sequential":
            out = plain(x, whole_edges(graph), carried["edge_weight"])
        else:
            out = plain(x, whole_edges(graph), **carried)
        loss = nn.functional.cross_entropy(out[rows], y[rows])
        loss.backward()
        optimizer.step()
        want.append(loss.item())
    asked = TrainConfig(steps=5, eval_every=5, dtype="float64")
    for parts in (1, 3):
        losses, book = [], cut(graph, parts, "random", tmp_path)

        def work(transport, book=book, losses=losses):
            watch = (lambda line: losses.append(line["loss"])) if transport.rank == 0 else None
            train(book, asked, transport, model=copy.deepcopy(model), watch=watch)

        Hub(parts).run(work)
        np.testing.assert_allclose(losses, want, rtol=0, atol=1e-10)


def test_pyg_convolutions_that_are_not_given_weights_do_not_use_them(tmp_path):
    graph, conv = weighted_graph(), pyg.GCNConv(10, 4).double()
    x = torch.from_numpy(graph.x)
    want = conv(x, whole_edges(graph))
    local = LocalGraph.from_part(
        cut(graph, 1, "random", tmp_path).part(0), Hub(1).transport(0), True, dtype=torch.float64, weighted=True
    )
    torch.testing.assert_close(distribute(conv)(x[local.nodes], local), want[local.nodes], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("columns", "model", "words"),
    [
        (1, None, "has edge weights: sums, means and degrees of GCN are weighted"),
        (2, None, "(2 column(s) of edge_attr), and GCN does not read them"),
        (2, Attributed, None),
        (1, lambda: pyg.GraphSAGE(10, 8, 2, 4), "(1 column(s) of edge_attr), and GraphSAGE does not read them"),
    ],
)
def test_what_is_used_and_what_is_not_is_said(tmp_path, columns, model, words):
    said, book = [], cut(weighted_graph(columns=columns), 1, "random", tmp_path)
    asked = TrainConfig(steps=2, dtype="float64")
    made = None if model is None else model().double()
    train(book, asked, Hub(1).transport(0), model=made, note=said.append)
    assert (len(said), words is None) in ((0, True), (1, False))
    assert words is None or words in said[0]


def test_weights_below_zero_are_refused(tmp_path):
    graph = weighted_graph()
    graph.edge_attr[3] = -1
    with pytest.raises(InputError, match=r"weights below 0.*--edge-weights none"):
        run(cut(graph, 1, "random", tmp_path), config())


@pytest.mark.parametrize(("rule", "want"), [("first", 1.0), ("sum", 6.0), ("mean", 2.0), ("max", 4.0)])
def test_parallel_edges(tmp_path, rule, want):
    """0 → 1 three times; the reverses are added, and follow the same rule."""
    graph = community_graph()
    edges = np.array([[0, 0, 0, 2], [1, 1, 1, 3]])
    path = npz(tmp_path / "multi.npz", edge_index=edges, edge_attr=np.array([1.0, 4, 1, 7]), x=graph.x)
    read = load(path, undirected=True, multi_edges=rule)
    found = {
        (int(j), i): float(read.edge_attr[k])
        for i in range(4)
        for k, j in zip(range(*read.indptr[i : i + 2]), read.indices[slice(*read.indptr[i : i + 2])], strict=True)
    }
    assert found == pytest.approx({(0, 1): want, (1, 0): want, (2, 3): 7.0, (3, 2): 7.0})
    if rule != "first":
        assert any(f"the {rule} of them" in note for note in read.notes)
    both = npz(tmp_path / "both.npz", edge_index=np.array([[0, 1], [1, 0]]), edge_attr=np.array([2.0, 5.0]), x=graph.x)
    assert load(both, undirected=True, multi_edges="sum").edge_attr.tolist() == [5.0, 2.0]


def test_parallel_edges_without_weights_get_their_number(tmp_path):
    path = npz(tmp_path / "multi.npz", edge_index=np.array([[0, 0, 2], [1, 1, 3]]))
    assert sorted(load(path, undirected=True, multi_edges="sum").edge_attr.tolist()) == [1, 1, 2, 2]
    assert load(path, undirected=True).edge_attr is None
