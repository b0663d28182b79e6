"""Sparse features of halo nodes: right rows, and once per run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from graphs import community_graph, cut, sparse_rows
from products import pairwise

from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.engine.prepare import Views
from isthmus.engine.step import train_step
from isthmus.errors import InputError
from isthmus.features.sparse import fetch_sparse
from isthmus.local import Policy
from isthmus.nn import ModelConfig
from isthmus.recipes import find


def planted(graph):
    """Return a graph in which row i holds i % 4 values, none of which any other row has."""
    count = np.arange(graph.num_nodes) % 4
    dense = np.arange(graph.num_nodes)[:, None] * 100.0 + np.arange(1, 11)
    dense[np.arange(10)[None, :] < 10 - count[:, None]] = 0
    return dense


@pytest.mark.parametrize("method", ["blocks", "random"])
def test_halo_rows_are_their_owners_rows(tmp_path, method):
    graph = community_graph()
    dense = planted(graph)
    book = cut(replace(graph, x=sparse_rows(dense)), 3, method, tmp_path)

    def work(transport):
        view = Views.of(book, TrainConfig(dtype="float64"), Policy(), transport).train
        transport.ledger.kinds.clear()  # of what was said when the graph was made
        halo = fetch_sparse(view.data.x, view.graph.runtime.whole.links, transport, 0, 0)
        assert np.array_equal(halo.dense().numpy(), dense[view.graph.halo_nodes])
        sent, counted = transport.ledger.kinds, sum(transport.ledger.rows.values())
        return len(view.graph.halo_nodes), counted, int(halo.pattern.num_edges), sent["ids"], sent["features"]

    rows, counted, values, ids, features = np.array(Hub(3).run(work)).sum(0)
    assert counted == rows > 0
    assert (ids, features) == (4 * rows, (4 + 8) * values)  # lengths; columns and float64 values


@pytest.mark.parametrize(
    *pairwise(model=["gcn", "sage", "gat"], recipe=["exact", "bns", "pipegcn", "isthmus"], sparse=[True, False])
)
def test_input_rows_cross_once(tmp_path, model, recipe, sparse):
    """Whatever the policy: site 0 sends in the first step, and nothing after it, forward or backward."""
    graph = community_graph()
    dense = planted(graph) / 1e4
    book = cut(replace(graph, x=sparse_rows(dense) if sparse else dense), 3, "metis", tmp_path)
    config = TrainConfig(ModelConfig(model, hidden=8, dropout=0.5), dtype="float64")

    def work(transport):
        view = Views.of(book, config, find(recipe).policy({}), transport).train
        net = config.model.build(10, 4, seed=0, dtype=torch.float64)
        optimizer = torch.optim.SGD(net.parameters(), 0.01)
        sent: list[Counter] = []
        for step in range(3):
            transport.ledger.take()
            train_step(net, optimizer, view, 40, step)
            sent.append(Counter(site for (site, *_), size in transport.ledger.bytes.items() if size))
        view.graph.runtime.drain()
        return sent

    first, *rest = Hub(3).run(work)[0]
    assert first[0]
    for step in rest:
        assert not step[0]
        assert step[1]


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_input_dropout_is_the_same_for_rows_that_are_kept_sparse(tmp_path, model):
    """Masks are equal, though `vanilla` makes rows dense and sends them at every step, while `exact` does neither."""
    graph = community_graph()
    book = cut(replace(graph, x=sparse_rows(planted(graph) / 1e4)), 3, "metis", tmp_path)
    shape = ModelConfig(model, hidden=8, dropout=0.5, input_dropout=0.4)
    config = TrainConfig(shape, steps=4, eval_every=2, dtype="float64")

    def work(transport, recipe):
        lines: list = []
        train(book, config, transport, policy=find(recipe).policy({}), watch=lines.append)
        return [line["loss"] for line in lines]

    vanilla, exact = (Hub(3).run(partial(work, recipe=recipe))[0] for recipe in ("vanilla", "exact"))
    assert vanilla == pytest.approx(exact, rel=1e-12)


def test_nothing_is_dropped_outside_training(tmp_path):
    """The same of sparse features as of dense ones."""
    graph = community_graph()
    book = cut(replace(graph, x=sparse_rows(np.maximum(graph.x, 0))), 1, "random", tmp_path)
    view = Views.of(book, TrainConfig(), Policy(), Hub(1).transport(0)).train
    view.graph.runtime.begin(0, training=False)
    assert torch.equal(view.graph.dropout(view.data.x, 0.5).dense(), view.data.x.dense())
    with pytest.raises(InputError, match="at least 0 and below 1"):
        view.graph.dropout(view.data.x, 1.5)
