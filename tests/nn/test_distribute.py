"""Whole PyG models on parts, their code unchanged, equal the same models on the whole graph."""

from __future__ import annotations

import copy

import pytest
import torch
from graphs import community_graph, cut, whole_edges
from torch import nn

from isthmus.comm import Hub
from isthmus.errors import InputError
from isthmus.local import LocalGraph
from isthmus.nn import Halo, distribute

pyg = pytest.importorskip("torch_geometric.nn", reason="PyG is not installed: pip install 'isthmus[pyg]'")


class Attributed(nn.Module):
    """Passes edge attributes on, by name."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.TransformerConv(10, 4, edge_dim=2)

    def forward(self, x, edge_index, edge_attr=None):
        edge_attr = edge_index.edge_attr if isinstance(edge_index, LocalGraph) else edge_attr
        return self.conv(x, edge_index, edge_attr=edge_attr.double())


MODELS = {
    "GraphSAGE": lambda: pyg.GraphSAGE(10, 8, 2, 4),
    "GCN": lambda: pyg.GCN(10, 8, 3, 4),
    "GAT": lambda: pyg.GAT(10, 8, 2, 4, heads=2),
    "GIN": lambda: pyg.GIN(10, 8, 2, 4),
    "GCN without bias": lambda: pyg.GCN(10, 8, 2, 4, bias=False, norm=pyg.LayerNorm(8, mode="node")),
    "edge attributes": Attributed,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("order", ["as PyG has it", "as the engine has it"])
def test_a_whole_model(tmp_path, name, order):
    torch.manual_seed(0)
    graph, model = community_graph(), MODELS[name]().double()
    x, names = torch.from_numpy(graph.x), list(model.state_dict())
    more = (torch.from_numpy(graph.edge_attr),) if name == "edge attributes" else ()
    want = model(x, whole_edges(graph), *more)
    weights = torch.randn_like(want)
    (want * weights).sum().backward()
    assert distribute(distribute(model)) is model  # twice does no harm
    assert list(model.state_dict()) == names
    torch.testing.assert_close(model(x, whole_edges(graph), *more), want, rtol=0, atol=0)
    book = cut(graph, 3, "random", tmp_path)

    def work(transport):
        local, mine = LocalGraph.from_part(book.part(transport.rank), transport, True), copy.deepcopy(model)
        mine.zero_grad()
        rows = x[local.nodes]
        out = mine(rows, local) if order == "as PyG has it" else mine(local, rows)
        (out * weights[local.nodes]).sum().backward()
        return local.nodes, out.detach(), [p.grad for p in mine.parameters()]

    nodes, outs, gradients = zip(*Hub(3).run(work), strict=True)
    torch.testing.assert_close(torch.cat(outs)[torch.cat(nodes).argsort()], want.detach(), rtol=0, atol=1e-10)
    for parts, one in zip(zip(*gradients, strict=True), model.parameters(), strict=True):
        torch.testing.assert_close(sum(parts), one.grad, rtol=0, atol=1e-10)


def test_models_that_call_the_graph_themselves_stay_as_they_are():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.held = pyg.SAGEConv(10, 4), Halo(pyg.SAGEConv(10, 4))

        def forward(self, graph, x):
            return self.conv((graph.halo(x), x), graph.edge_index) + self.held(graph, x)

    model = distribute(Own())
    assert "forward" not in vars(model.held.conv)


class Doubled(pyg.GCNConv):
    def message(self, x_j, edge_weight):
        return 2 * super().message(x_j, edge_weight)


class Rows(pyg.MessagePassing):
    """Somebody's own, which knows of one kind of rows only."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x, size=(x.size(0), x.size(0)))


@pytest.mark.parametrize(
    ("conv", "words"),
    [
        (lambda: pyg.ChebConv(10, 4, 2), "ChebConv takes no pair of rows"),
        (lambda: Doubled(10, 4), "Doubled takes no pair of rows"),
        (lambda: Rows(), "Rows takes no pair of rows .*'tuple' object"),
        (lambda: pyg.SAGEConv(10, 4, flow="target_to_source"), "against the edges"),
        (lambda: pyg.SAGEConv(10, 4, aggr="lstm"), "on the order of the edges"),
        (lambda: pyg.GCNConv(10, 4, aggr="max"), "sums along the edges"),
        (lambda: pyg.GCNConv(10, 4, flow="target_to_source"), "sums along the edges"),
    ],
)
def test_convolutions_that_would_do_something_else_are_refused(tmp_path, conv, words):
    local = LocalGraph.from_part(cut(community_graph(), 1, "random", tmp_path).part(0), Hub(1).transport(0), True)
    with pytest.raises(InputError, match=words):
        distribute(conv().double())(torch.randn(local.num_inner, 10).double(), local)


def test_layers_of_unknown_width_are_refused():
    with pytest.raises(InputError, match="instead of -1"):
        distribute(pyg.GraphSAGE(-1, 8, 2, 4))


def test_by_name(tmp_path):
    """A model may be called with names for its arguments."""
    local = LocalGraph.from_part(cut(community_graph(), 1, "random", tmp_path).part(0), Hub(1).transport(0), True)
    model, x = distribute(pyg.GraphSAGE(10, 8, 2, 4).double()), torch.randn(local.num_inner, 10).double()
    assert torch.equal(model(x=x, edge_index=local), model(local, x))
    assert torch.equal(model(x, edge_index=local), model(local, x))
