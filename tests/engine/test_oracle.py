"""The distributed engine against the literal algorithm, step by step."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import community_graph, cut
from oracle.full_graph import losses

from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.nn import ModelConfig


@pytest.mark.parametrize("model", ["gcn", "sage"])
@pytest.mark.parametrize("directed", [False, True])
def test_thirty_steps(tmp_path, model, directed):
    graph = community_graph(directed=directed)
    shape = ModelConfig(model=model, layers=3, hidden=8, dropout=0.0)
    config = TrainConfig(model=shape, steps=30, eval_every=30, dtype="float64", optimizer="sgd", lr=0.5, seed=2)
    first = shape.build(graph.num_features, graph.num_classes, config.seed).double()
    weights = [parameter.detach().numpy() for parameter in first.parameters()]
    want = losses(graph, model, weights, config.steps, config.lr)
    assert want[-1] < want[0]
    for workers in (1, 2, 3, 4):
        book, got = cut(graph, workers, "random", tmp_path), []

        def work(transport, book=book, got=got):
            watch = (lambda line: got.append(line["loss"])) if transport.rank == 0 else None
            train(book, config, transport, watch=watch)

        Hub(workers).run(work)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-10)
