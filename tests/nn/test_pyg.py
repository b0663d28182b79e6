"""PyG convolutions on parts equal the same convolutions on the whole graph."""

from __future__ import annotations

import pytest
import torch
from graphs import community_graph, cut, whole_edges
from torch import nn

from isthmus.comm import Hub
from isthmus.local import LocalGraph
from isthmus.nn import GATConv, GCNConv, Halo, SAGEConv

pyg = pytest.importorskip("torch_geometric.nn", reason="PyG is not installed: pip install 'isthmus[pyg]'")

CONVS = {
    "SAGEConv": lambda: pyg.SAGEConv(10, 6),
    "GATConv": lambda: pyg.GATConv(10, 6, heads=2),
    "GINConv": lambda: pyg.GINConv(nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 6))),
    "TransformerConv": lambda: pyg.TransformerConv(10, 6, heads=2),
}


def distributed(book, conv, x, weights):
    """Output in original ids, gradient of x in original ids, summed gradients of the parameters."""

    def work(transport):
        graph = LocalGraph.from_part(book.part(transport.rank), transport, book.symmetric)
        mine = x[graph.nodes].clone().requires_grad_()
        import copy

        local = copy.deepcopy(conv)
        out = local(graph, mine)
        (out * weights[graph.nodes]).sum().backward()
        return graph.nodes, out.detach(), mine.grad, [p.grad for p in local.parameters()]

    results = Hub(book.num_parts).run(work)
    nodes = torch.cat([r[0] for r in results])
    order = torch.argsort(nodes)
    gradients = [sum(parts) for parts in zip(*(r[3] for r in results), strict=True)]
    return torch.cat([r[1] for r in results])[order], torch.cat([r[2] for r in results])[order], gradients


@pytest.mark.parametrize("name", CONVS)
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_bipartite_convolution(tmp_path, name, parts):
    torch.manual_seed(0)
    graph, conv = community_graph(), CONVS[name]().double()
    x = torch.from_numpy(graph.x).requires_grad_()
    out = conv((x, x), whole_edges(graph))
    weights = torch.randn_like(out)
    (out * weights).sum().backward()
    got, got_x, got_weights = distributed(cut(graph, parts, "random", tmp_path), Halo(conv), x.detach(), weights)
    torch.testing.assert_close(got, out.detach(), rtol=0, atol=1e-10)
    torch.testing.assert_close(got_x, x.grad, rtol=0, atol=1e-10)
    for one, other in zip(got_weights, conv.parameters(), strict=True):
        torch.testing.assert_close(one, other.grad, rtol=0, atol=1e-10)


def test_edge_attributes_reach_the_convolution(tmp_path):
    torch.manual_seed(0)
    graph, conv = community_graph(), pyg.TransformerConv(10, 6, edge_dim=2).double()
    x, attributes = torch.from_numpy(graph.x), torch.from_numpy(graph.edge_attr).double()
    want = conv((x, x), whole_edges(graph), edge_attr=attributes)
    book = cut(graph, 3, "random", tmp_path)

    def work(transport):
        local = LocalGraph.from_part(book.part(transport.rank), transport, book.symmetric)
        out = conv((local.halo(x[local.nodes]), x[local.nodes]), local.edge_index, edge_attr=local.edge_attr.double())
        return local.nodes, out.detach()

    results = Hub(3).run(work)
    order = torch.argsort(torch.cat([r[0] for r in results]))
    torch.testing.assert_close(torch.cat([r[1] for r in results])[order], want.detach(), rtol=0, atol=1e-10)


def test_our_gcn_is_pygs(tmp_path):
    ours, theirs = GCNConv(10, 6).double(), pyg.GCNConv(10, 6).double()
    theirs.lin.weight.data, theirs.bias.data = ours.weight.data, ours.bias.data
    assert_same(tmp_path, ours, theirs)


def test_our_sage_is_pygs(tmp_path):
    ours, theirs = SAGEConv(10, 6).double(), pyg.SAGEConv(10, 6).double()
    theirs.lin_r.weight.data, theirs.lin_l.weight.data = ours.weight.data[:, :10], ours.weight.data[:, 10:]
    theirs.lin_l.bias.data = ours.bias.data
    assert_same(tmp_path, ours, theirs)


@pytest.mark.parametrize("concat", [True, False])
def test_our_gat_is_pygs(tmp_path, concat):
    ours, theirs = GATConv(10, 6, 2, concat).double(), pyg.GATConv(10, 6, 2, concat).double()
    theirs.lin.weight.data, theirs.bias.data = ours.weight.data, ours.bias.data
    theirs.att_src.data, theirs.att_dst.data = ours.source.data, ours.target.data
    assert_same(tmp_path, ours, theirs)


def assert_same(tmp_path, ours, theirs):
    graph = community_graph()
    x = torch.from_numpy(graph.x)
    want = theirs(x, whole_edges(graph)).detach()
    got, _, _ = distributed(cut(graph, 2, "random", tmp_path), ours, x, torch.ones_like(want))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-10)
