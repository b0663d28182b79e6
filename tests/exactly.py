"""Whole runs, and whether two of them are the same."""

from __future__ import annotations

import copy

import torch
from graphs import whole_edges

from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.nn import ModelConfig

STEPS = 20


def run(book, config, policy=None, model=None):
    """Losses of every step, final weights and scores, with workers as threads, each with its copy of a model."""
    losses = []

    def work(transport):
        watch = (lambda line: losses.append(line["loss"])) if transport.rank == 0 else None
        return train(book, config, transport, policy=policy, model=copy.deepcopy(model), watch=watch)

    results = Hub(book.num_parts).run(work)
    for other in results[1:]:
        for one, two in zip(results[0].model.parameters(), other.model.parameters(), strict=True):
            assert torch.equal(one, two)
    weights = torch.cat([p.detach().flatten() for p in results[0].model.parameters()])
    return torch.tensor(losses, dtype=torch.float64), weights, results[0].summary


def config(model="gcn", dropout=0.0, **changes):
    shape = ModelConfig(model=model, layers=3, hidden=8, heads=2, dropout=dropout, input_dropout=dropout / 2)
    # Evaluated at the last step only, so that the weights returned are the last ones.
    values = {"model": shape, "steps": STEPS, "eval_every": STEPS, "dtype": "float64", "seed": 3, **changes}
    return TrainConfig(**values)


def plainly(model, graph, steps=STEPS, **edges):
    """Losses and final weights of one process of PyG, and of torch, which know nothing of parts."""
    model, losses = copy.deepcopy(model), []
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x, y, edge_index = torch.from_numpy(graph.x), torch.from_numpy(graph.y), whole_edges(graph)
    rows = torch.from_numpy(graph.train_mask[:, 0])
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x, edge_index, **edges)[rows], y[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    return torch.tensor(losses, dtype=torch.float64), weights


def assert_equal_runs(one, other, tolerance=1e-10):
    assert len(one[0]) == STEPS
    torch.testing.assert_close(one[0], other[0], rtol=0, atol=tolerance)
    torch.testing.assert_close(one[1], other[1], rtol=0, atol=tolerance)
    assert one[2]["test"] == other[2]["test"]
