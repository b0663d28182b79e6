"""Norms over all nodes: on parts they compute what torch and PyG compute on all rows, forward and backward."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from exactly import plainly
from graphs import community_graph, cut
from norm_cases import NORMS
from torch import nn

from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.errors import InputError
from isthmus.local import LocalGraph
from isthmus.nn import distribute

pyg = pytest.importorskip("torch_geometric.nn", reason="PyG is not installed: pip install 'isthmus[pyg]'")
GRAPH = community_graph()

BY_GROUP = ("LayerNorm", "GraphNorm", "PairNorm", "PairNorm by row", "InstanceNorm", "GraphSizeNorm")


class Normed(nn.Module):
    """Rows through a norm; two passes, so that running statistics move twice."""

    def __init__(self, norm: nn.Module):
        super().__init__()
        self.first, self.norm = nn.Linear(10, 6), norm

    def forward(self, graph, x, *groups):
        return self.norm(self.first(x), *groups).pow(3)


@pytest.fixture(scope="module")
def books(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    return {parts: cut(GRAPH, parts, "random", folder) for parts in (1, 2, 4)}


def made(name: str) -> nn.Module:
    torch.manual_seed(1)
    model = Normed(NORMS[name]()).double()
    with torch.no_grad():
        for parameter in model.norm.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return model


def passes(model, graph, x, weights, *groups):
    """Two forward and backward passes, then one in evaluation: rows, gradients, running statistics."""
    for step in range(2):
        if isinstance(graph, LocalGraph):
            graph.runtime.begin(step)
        out = model(graph, x, *groups)
        total = (out * weights).sum()
        graph.runtime.backward(total) if isinstance(graph, LocalGraph) else total.backward()
    running = [buffer.clone() for buffer in model.buffers()]
    with torch.no_grad():
        if isinstance(graph, LocalGraph):
            graph.runtime.begin(2, training=False)
        scored = model.eval()(graph, x, *groups)
    return out.detach(), scored, [p.grad for p in model.parameters()], running


CASES = [*((name, False) for name in NORMS), *((name, True) for name in BY_GROUP)]


@pytest.mark.parametrize(("name", "grouped"), CASES)
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_a_norm_sees_all_rows(books, name, parts, grouped):
    x, groups = torch.from_numpy(GRAPH.x), torch.arange(120) % 5
    weights = torch.randn(120, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    alone, model = made(name), distribute(made(name))
    if name == "SyncBatchNorm":  # torch's own wants an accelerator
        alone.norm = NORMS["torch"]().double()
        alone.norm.load_state_dict(made(name).norm.state_dict())
    want = passes(alone, None, x, weights, *([groups] if grouped else []))

    def work(transport):
        local = LocalGraph.from_part(books[parts].part(transport.rank), transport, True, dtype=torch.float64)
        at = local.nodes
        return at, passes(copy.deepcopy(model), local, x[at], weights[at], *([groups[at]] if grouped else []))

    nodes, found = zip(*Hub(parts).run(work), strict=True)
    order = torch.cat(nodes).argsort()
    for k in range(2):
        torch.testing.assert_close(torch.cat([one[k] for one in found])[order], want[k], rtol=0, atol=1e-10)
    for gradients, one in zip(zip(*(one[2] for one in found), strict=True), want[2], strict=True):
        torch.testing.assert_close(sum(gradients), one, rtol=0, atol=1e-9)
    for one in found:
        torch.testing.assert_close(one[3], want[3], rtol=0, atol=1e-10)
        assert all(torch.equal(a, b) for a, b in zip(one[3], found[0][3], strict=True))


def test_means_far_from_zero_lose_no_digits(books):
    """The variance of a million plus noise, in float32."""
    x = torch.randn(120, 10, generator=torch.Generator().manual_seed(0)) * 1e-1 + 1e3

    def work(transport):
        local = LocalGraph.from_part(books[4].part(transport.rank), transport, True)
        return local.moments(x[local.nodes])

    for _, mean, variance in Hub(4).run(work):
        torch.testing.assert_close(mean[0], x.double().mean(0).float())
        torch.testing.assert_close(variance[0], x.double().var(0, correction=0).float(), rtol=1e-3, atol=0)


@pytest.mark.parametrize("what", ["sum", "mean", "max"])
@pytest.mark.parametrize("grouped", [False, True])
def test_readouts(books, what, grouped):
    x, groups = torch.from_numpy(GRAPH.x).round(decimals=1), torch.arange(120) % 7  # rounded: several equal maxima
    whole = x.clone().requires_grad_()
    pick = [whole[groups == g] for g in range(7)] if grouped else [whole]
    want = torch.stack([getattr(rows, {"max": "amax"}.get(what, what))(0) for rows in pick])
    weights = torch.randn(want.shape, dtype=torch.float64)
    (want * weights).sum().backward()

    def work(transport):
        local = LocalGraph.from_part(books[4].part(transport.rank), transport, True)
        mine = x[local.nodes].requires_grad_()
        out = getattr(local, what)(mine, *([groups[local.nodes]] if grouped else []))
        share = (out.view_as(want) * weights).sum() * (transport.rank == 2)  # one worker's loss alone reads it
        local.runtime.backward(share)
        return local.nodes, out.detach().view_as(want), mine.grad

    nodes, outs, gradients = zip(*Hub(4).run(work), strict=True)
    for out in outs:
        torch.testing.assert_close(out, want.detach(), rtol=0, atol=1e-10)
    torch.testing.assert_close(torch.cat(gradients)[torch.cat(nodes).argsort()], whole.grad, rtol=0, atol=1e-10)


def test_a_norm_of_halo_rows_is_refused(books):
    class Late(Normed):
        def forward(self, graph, x):
            return self.norm(graph.halo(self.first(x)))

    def work(transport):
        local = LocalGraph.from_part(books[2].part(transport.rank), transport, True, dtype=torch.float64)
        distribute(Late(nn.BatchNorm1d(6)).double())(local, torch.from_numpy(GRAPH.x)[local.nodes])

    with pytest.raises(InputError, match="rows of halo nodes, which would count several times"):
        Hub(2).run(work)


class Own(pyg.GraphNorm):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize("norm", [lambda: Own(6), lambda: nn.InstanceNorm1d(6, track_running_stats=True)])
def test_norms_of_unknown_form_are_refused(norm):
    with pytest.raises(InputError, match="normalises over all nodes, of which a worker has only some"):
        distribute(nn.Sequential(norm()))


class Arxiv(nn.Module):
    """GCN and SAGE in the form of OGB's examples for arxiv and products."""

    def __init__(self, features, classes, conv=pyg.GCNConv, dropout=0.5):
        super().__init__()
        self.convs = nn.ModuleList([conv(features, 8), conv(8, 8), conv(8, classes)])
        self.bns = nn.ModuleList([nn.BatchNorm1d(8), nn.BatchNorm1d(8)])
        self.dropout = dropout

    def forward(self, x, adj_t):
        for i, conv in enumerate(self.convs[:-1]):
            x = conv(x, adj_t)
            x = self.bns[i](x)
            x = nn.functional.relu(x)
            x = nn.functional.dropout(x, p=self.dropout, training=self.training)
        x = self.convs[-1](x, adj_t)
        return x.log_softmax(dim=-1)


@pytest.mark.parametrize("conv", ["GCNConv", "SAGEConv", "GATConv"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_models_of_ogb_train_as_they_are(books, conv, dropout):
    """Equal to a plain loop of PyG without dropout; with it, equal on 1, 2 and 4 workers."""
    torch.manual_seed(0)
    more = {} if conv != "GATConv" else {"dropout": dropout}
    model = Arxiv(10, 4, lambda a, b: getattr(pyg, conv)(a, b, **more), dropout).double()
    runs = {}
    for parts, book in books.items():
        losses = []

        def work(transport, book=book, losses=losses):
            watch = (lambda line: losses.append(line["loss"])) if transport.rank == 0 else None
            config = TrainConfig(steps=20, eval_every=20, dtype="float64")
            return train(book, config, transport, model=copy.deepcopy(model), watch=watch)

        results = Hub(parts).run(work)
        runs[parts] = losses, results[0].model.state_dict()
        for other in results[1:]:
            torch.testing.assert_close(other.model.state_dict(), runs[parts][1], rtol=0, atol=0)
    if not dropout:
        losses, weights = plainly(model, GRAPH)
        np.testing.assert_allclose(runs[1][0], losses, rtol=0, atol=1e-10)
        found = torch.cat([runs[1][1][name].flatten() for name, _ in model.named_parameters()])
        torch.testing.assert_close(found, weights, rtol=0, atol=1e-8)
    for losses, state in runs.values():
        np.testing.assert_allclose(losses, runs[1][0], rtol=0, atol=1e-10)
        torch.testing.assert_close(dict(state), dict(runs[1][1]), rtol=0, atol=1e-8)
