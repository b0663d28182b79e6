"""Recipes whose workers draw one joint batch: the literal algorithms, exact limits, resumed runs, and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from exactly import assert_equal_runs, config, run
from graphs import community_graph, cut, weighted_graph, with_few
from oracle import harness, joint_batches
from oracle.harness import LR, SEED, first_weights, relative
from oracle.layer_wise import layer_wise
from oracle.saint import saint

from isthmus.comm import Hub
from isthmus.engine import train
from isthmus.engine.verify import verify
from isthmus.errors import InputError
from isthmus.recipes import find

STEPS = 10


def literal(graph, model, batches):
    return joint_batches.losses(graph, model, first_weights(graph, model), batches, STEPS, LR)


def agrees(folder, graph, recipe, options, model, want, numbers, **changes):
    """Whether so many workers have the losses of the literal algorithm."""
    for workers in numbers:
        book = cut(graph, workers, "random", folder)
        got, _ = harness.run(book, model, find(recipe).policy(options), STEPS, **changes)
        assert relative(got, want) < 1e-10, workers


@pytest.mark.parametrize(
    ("model", "degrees", "form", "numbers"),
    [
        ("gcn", "batch", "directed", (1, 2, 3)),
        ("sage", "graph", "weighted", (1, 3)),
        ("gcn", "graph", "", (2,)),
        ("sage", "batch", "weighted", (2,)),
    ],
)
def test_cluster_gcn(tmp_path, model, degrees, form, numbers):
    graph = weighted_graph() if form == "weighted" else community_graph(60, directed=form == "directed")
    graph = graph if form == "weighted" else replace(graph, edge_attr=None)
    cluster = joint_batches.clusters_of(graph, 7, SEED)
    want = literal(graph, model, joint_batches.cluster_gcn(graph, model, cluster, 3, degrees, SEED))
    options = {"clusters": 7, "per_batch": 3, "degrees": degrees}
    agrees(tmp_path, graph, "cluster-gcn", options, model, want, numbers)


@pytest.mark.parametrize(
    ("model", "kind", "coverage", "numbers"),
    [
        ("gcn", "node", 0, (1, 2, 3)),
        ("sage", "edge", 0, (1, 3)),
        ("gcn", "walk", 3, (1, 2, 3)),
        ("sage", "node", 2, (2,)),
        ("gcn", "edge", 0, (2,)),
    ],
)
def test_graphsaint(tmp_path, model, kind, coverage, numbers):
    graph = weighted_graph() if model == "sage" else replace(community_graph(60, directed=True), edge_attr=None)
    want = literal(graph, model, saint(graph, model, kind, 20, SEED, coverage=coverage))
    agrees(tmp_path, graph, "graphsaint", {"kind": kind, "coverage": coverage}, model, want, numbers, batch_size=20)


@pytest.mark.parametrize(
    ("model", "recipe", "options", "numbers"),
    [
        ("gcn", "fastgcn", {}, (1, 2, 3)),
        ("sage", "ladies", {"renormalised": True}, (1, 2, 3)),
        ("gcn", "ladies", {"renormalised": False}, (2,)),
    ],
)
def test_layer_by_layer(tmp_path, model, recipe, options, numbers):
    graph = weighted_graph() if model == "sage" else replace(community_graph(60, directed=True), edge_attr=None)
    want = literal(graph, model, layer_wise(graph, model, recipe, 15, 11, SEED, **options))
    agrees(tmp_path, graph, recipe, {"layer_nodes": 15, **options}, model, want, numbers, batch_size=11)


WHOLE = [
    ("cluster-gcn", {"clusters": 5, "per_batch": 5}, {}),
    ("cluster-gcn", {"clusters": 1, "degrees": "graph"}, {}),
    ("graphsaint", {"kind": "node"}, {"batch_size": 50_000}),
    ("graphsaint", {"kind": "edge"}, {"batch_size": 4_000}),
    ("graphsaint", {"coverage": 3}, {"batch_size": 5_000}),
    ("fastgcn", {"layer_nodes": 120}, {}),
    ("ladies", {"layer_nodes": 120}, {}),
]
"""Recipes and options with which every batch is the whole graph."""


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    return run(cut(community_graph(), 2, "metis", tmp_path_factory.mktemp("full")), config("gcn"))


@pytest.mark.parametrize(("recipe", "options", "changes"), WHOLE)
def test_a_batch_of_all_nodes_is_the_full_graph(tmp_path, full, recipe, options, changes):
    book, policy = cut(community_graph(), 3, "random", tmp_path), find(recipe).policy(options)
    assert_equal_runs(full, run(book, config("gcn", **changes), policy))


SMALL = [
    ("cluster-gcn", {"clusters": 11, "per_batch": 3}, {}),
    ("graphsaint", {"coverage": 2}, {"batch_size": 7}),
    ("ladies", {"layer_nodes": 20}, {"batch_size": 3}),
    pytest.param("graphsaint", {"kind": "edge"}, {"batch_size": 11}, marks=pytest.mark.full),
    pytest.param("fastgcn", {"layer_nodes": 20}, {"batch_size": 3}, marks=pytest.mark.full),
]
"""Recipes, options and changes of the config with which batches are small."""


@pytest.mark.parametrize(("recipe", "options", "changes"), SMALL)
def test_dropout_attention_and_few_training_nodes(tmp_path, recipe, options, changes):
    """Any number of workers has the losses of one, in batches without a training node too."""
    graph, policy = with_few(community_graph()), find(recipe).policy(options)
    asked = config("gat", 0.5, **changes)
    alone = run(cut(graph, 1, "random", tmp_path), asked, policy)
    assert_equal_runs(alone, run(cut(graph, 3, "metis", tmp_path), asked, policy))


@pytest.mark.parametrize(
    ("recipe", "options", "changes"),
    [SMALL[0], *(pytest.param(*one, marks=pytest.mark.full) for one in SMALL[1:3]), *SMALL[3:]],
)
def test_runs_go_on_and_verify(tmp_path, recipe, options, changes):
    """A run goes on bit for bit in the middle of an epoch, and on fewer workers up to rounding."""
    book, policy = cut(community_graph(), 3, "random", tmp_path), find(recipe).policy(options)

    def losses(workers, steps, folder, resume=False):
        asked, found = config("sage", 0.5, steps=steps, eval_every=3, **changes), []

        def work(transport):
            watch = (lambda line: found.append(line["loss"])) if transport.rank == 0 else None
            return train(book, asked, transport, policy=policy, out=tmp_path / folder, resume=resume, watch=watch)

        Hub(workers).run(work)
        return found

    through = losses(3, 9, "through")
    assert losses(3, 5, "same") + losses(3, 9, "same", resume=True) == through
    fewer = losses(3, 5, "fewer") + losses(2, 9, "fewer", resume=True)
    np.testing.assert_allclose(fewer, through, rtol=0, atol=1e-10)
    told = Hub(3).run(lambda transport: verify(book, config("gcn", steps=4, **changes), transport, policy))[0]
    assert told["equal"], told


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_single_precision_is_near_double(tmp_path, precision):
    book, options = cut(weighted_graph(), 2, "random", tmp_path), {"kind": "edge"}
    double = run(book, config("sage", batch_size=60), find("graphsaint").policy(options))
    policy = find("graphsaint").policy({**options, "precision": precision})
    single = run(book, config("sage", batch_size=60, dtype="float32"), policy)
    torch.testing.assert_close(single[0], double[0], rtol=1e-4 if precision == "fp32" else 0.1, atol=0)


def test_pygs_models_by_name(tmp_path):
    pytest.importorskip("torch_geometric")
    from torch_geometric.nn.models import GraphSAGE

    from isthmus.nn import distribute

    torch.manual_seed(0)
    graph, policy = replace(community_graph(), edge_attr=None), find("cluster-gcn").policy({"clusters": 6})
    model = GraphSAGE(10, 8, 3, 4, dropout=0.3).double()
    one, three = (
        run(cut(graph, workers, "random", tmp_path), config(), policy, distribute(model)) for workers in (1, 3)
    )
    assert_equal_runs(one, three)


@pytest.mark.parametrize(
    ("recipe", "options", "changes", "message"),
    [
        ("cluster-gcn", {}, {"fanout": "5,5,5"}, "leave --fanout out"),
        ("cluster-gcn", {}, {"batch": "apart"}, "leave --batch apart out"),
        ("cluster-gcn", {}, {"structure": "owner"}, "leave --structure owner out"),
        ("cluster-gcn", {}, {"rows": "here"}, "leave --rows here out$"),
        ("cluster-gcn", {}, {"eval_fanout": "5,5"}, r"--eval-fanout draws for 2 hop"),
        ("cluster-gcn", {"clusters": 4}, {"batch_size": 10}, "leave --batch-size out, or clusters"),
        ("cluster-gcn", {"clusters": 400}, {}, "120 nodes has no 400 clusters"),
        ("graphsaint", {"kind": "node"}, {"fanout": "5,5,5"}, "leave --fanout out"),
        ("graphsaint", {"length": 0}, {}, "length must be at least 1"),
        ("ladies", {"layer_nodes": 0}, {}, "layer_nodes must be at least 1"),
        ("cluster-gcn", {"clusters": -1}, {}, "clusters must be at least 0"),
        ("cluster-gcn", {"degrees": "graph", "per_batch": 1}, {}, "set per_batch to 2 or more"),
    ],
)
def test_refusals(tmp_path, recipe, options, changes, message):
    book = cut(community_graph(), 1, "random", tmp_path)
    with pytest.raises(InputError, match=message):
        run(book, config("gcn", **changes), find(recipe).policy(options))
