"""Training by mini-batches: any number of workers, any way of asking and of working ahead, one result."""

from __future__ import annotations

from dataclasses import replace

import pytest
from exactly import assert_equal_runs, config, run
from graphs import community_graph, cut, with_few

from isthmus.local import Policy, Savings
from isthmus.minibatch import BatchPolicy


def batches(**changes):
    return Policy(Savings(read_rows=False), batches=BatchPolicy(**changes))


def asked(model="sage", **changes):
    return config(model, 0.5, **{"batch_size": 13, "fanout": "4,3,2", **changes})


@pytest.mark.parametrize(
    ("model", "structure", "way"),
    [
        ("gcn", "here", {}),
        ("sage", "owner", {"ahead": 0}),
        ("gat", "here", {"share": "position"}),
        ("gcn", "owner", {"draw": "labor", "ahead": 3}),
        ("sage", "owner", {"replace": True, "share": "even"}),
    ],
)
def test_workers_agree(tmp_path, model, structure, way):
    graph = community_graph(directed=model == "gat")
    drawn = {name: value for name, value in way.items() if name in ("draw", "replace")}
    alone = run(cut(graph, 1, "random", tmp_path), asked(model), batches(**drawn))
    for workers in (2, 3, 4):
        book = cut(graph, workers, "metis" if workers == 3 else "random", tmp_path)
        assert_equal_runs(alone, run(book, asked(model, structure=structure), batches(**way)))


@pytest.mark.parametrize(("model", "way"), [("gcn", {"draw": "labor"}), ("sage", {}), ("gat", {"ahead": 0})])
def test_together_is_what_one_worker_computes(tmp_path, model, way):
    graph = community_graph(directed=model != "gat")
    alone = run(cut(graph, 1, "random", tmp_path), asked(model), batches(**way))
    for workers in (1, 2, 4):
        book = cut(graph, workers, "blocks", tmp_path)
        assert_equal_runs(alone, run(book, asked(model, batch="together"), batches(**way)))


@pytest.mark.parametrize("structure", ["here", "owner"])
def test_workers_without_seed_nodes(tmp_path, structure):
    """Five seed nodes and one, in turn, for three workers, one of which owns no training node at all."""
    graph = with_few(community_graph())
    mask = graph.train_mask.copy()
    mask[: graph.num_nodes // 3] = False
    graph = replace(graph, train_mask=mask)
    book = cut(graph, 3, "blocks", tmp_path)
    assert not book.part(0).train_mask.any()
    assert book.train == (6,)
    alone = run(cut(graph, 1, "blocks", tmp_path), asked(batch_size=5), batches())
    assert_equal_runs(alone, run(book, asked(batch_size=5, structure=structure), batches()))


def test_all_neighbours_of_all_training_nodes_are_the_full_graph(tmp_path):
    graph = community_graph()
    full = run(cut(graph, 2, "metis", tmp_path), config("gcn"))
    drawn = run(cut(graph, 3, "random", tmp_path), config("gcn", batch_size=1000, fanout="-1,-1,-1"), batches())
    assert_equal_runs(full, drawn)
