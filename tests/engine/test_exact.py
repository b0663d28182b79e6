"""Exact training: any number of workers, any cut, one result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from exactly import assert_equal_runs, config, run
from graphs import community_graph, cut, sparse_rows, with_few
from products import each_value, pairwise
from torch import nn

from isthmus.errors import InputError
from isthmus.local import LocalGraph, Policy, Savings
from isthmus.nn import GCNConv, ModelConfig
from isthmus.recipes import find

VANILLA = Policy(Savings(narrow_side=False, aggregate_once=False, overlap=False, read_rows=False))


@pytest.mark.parametrize(*pairwise(model=["gcn", "sage", "gat"], method=["random", "metis"], dropout=[0.0, 0.5]))
def test_workers_agree(tmp_path, model, method, dropout):
    graph = community_graph()
    asked = config(model, dropout)
    alone = run(cut(graph, 1, method, tmp_path), asked)
    assert alone[0][-1] < alone[0][0]
    for workers in (2, 3, 4):
        assert_equal_runs(alone, run(cut(graph, workers, method, tmp_path), asked))


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_part_without_a_training_node(tmp_path, model):
    graph = community_graph()
    train_mask = graph.train_mask.copy()
    train_mask[len(train_mask) // 3 :] = False  # parts 1 and 2 of three blocks have none
    graph = replace(graph, train_mask=train_mask)
    book = cut(graph, 3, "blocks", tmp_path)
    assert not book.part(2).train_mask.any()
    assert_equal_runs(run(cut(graph, 1, "blocks", tmp_path), config(model)), run(book, config(model)))


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_parts_with_an_empty_boundary(tmp_path, model):
    one, two = community_graph(60, seed=1), community_graph(60, seed=2)
    graph = replace(
        one,
        indptr=np.concatenate([one.indptr, two.indptr[1:] + one.num_edges]),
        indices=np.concatenate([one.indices, two.indices + 60]).astype(np.int32),
        edge_attr=None,
        **{
            n: np.concatenate([getattr(one, n), getattr(two, n)])
            for n in ("x", "y", "train_mask", "val_mask", "test_mask")
        },
    )
    book = cut(graph, 2, "blocks", tmp_path)
    assert [part.halo for part in book.parts] == [0, 0]
    assert_equal_runs(run(cut(graph, 1, "blocks", tmp_path), config(model)), run(book, config(model)))


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_directed_graph(tmp_path, model):
    graph = community_graph(directed=True)
    assert not graph.symmetric
    assert_equal_runs(
        run(cut(graph, 1, "random", tmp_path), config(model)), run(cut(graph, 3, "random", tmp_path), config(model))
    )


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_vanilla_is_exact_without_the_savings(tmp_path, model):
    book = cut(community_graph(), 3, "metis", tmp_path)
    exact, vanilla = run(book, config(model)), run(book, config(model), VANILLA)
    assert_equal_runs(exact, vanilla)
    saved, paid = (sum(r[2]["bytes_per_step"][kind] for kind in ("features", "embeddings")) for r in (exact, vanilla))
    assert saved < paid


@pytest.mark.parametrize(
    *each_value(
        recipe=["exact", "bns", "boundary-edge", "drop-edge", "pipegcn", "isthmus", "psc-gcn"],
        model=["gcn", "sage", "gat"],
        read=["most", "a third", "few"],
    )
)
def test_rows_that_no_loss_reads_change_nothing(tmp_path, monkeypatch, model, recipe, read):
    graph = community_graph()
    if read == "most":
        graph = replace(graph, train_mask=graph.train_mask | graph.test_mask)
    if read == "few":
        graph = with_few(community_graph(240, degree=4.0))
    book = cut(graph, 3, "metis", tmp_path)
    # Codes would jump where sums differ in their last bit. Attention reads all inner edges, whatever the last rate.
    given = {"bits": 32, "delta": False, "guard": "off"} if recipe == "isthmus" else {}
    given |= {"last_rate": 1} if recipe == "isthmus" and model != "gat" else {}
    given |= {"least": 0} if recipe == "psc-gcn" else {}
    policy, asked = find(recipe).policy(given), config(model, 0.5)
    want = run(book, asked, replace(policy, savings=Savings(read_rows=False)))
    made, sources = [], LocalGraph.sources
    monkeypatch.setattr(LocalGraph, "sources", lambda *about: made.append(sources(*about)) or made[-1])
    assert_equal_runs(want, run(book, asked, policy))
    assert read != "few" or any(rows is not None for rows in made)  # the layer before makes fewer, too


@pytest.mark.parametrize("workers", [1, 3])
def test_isthmus_without_its_losses_is_exact(tmp_path, workers):
    """Also where few nodes are training nodes: who asks for all rows does not mean those of the halo alone."""
    book = cut(with_few(community_graph(240, degree=4.0)), workers, "metis", tmp_path)
    given = {"staleness": 0, "sampler": "none", "rate": 1, "bits": 32, "bits_weights": 32, "delta": False}
    policy = find("isthmus").policy({**given, "precision": "fp32"})
    assert_equal_runs(run(book, config("sage", 0.5)), run(book, config("sage", 0.5), policy))


class OwnNet(nn.Module):
    """A model of one's own that makes the rows that are read, and no others; or too few."""

    def __init__(self, width, classes, makes=lambda graph: graph.read):
        super().__init__()
        self.first, self.last = GCNConv(width, 8), GCNConv(8, classes)
        self.makes = makes

    def forward(self, graph, x):
        return self.last(graph, torch.relu(self.first(graph, x)), self.makes(graph))


def test_own_model_gives_the_rows_that_are_read(tmp_path):
    graph = with_few(community_graph(240, degree=4.0))
    book, own = cut(graph, 3, "metis", tmp_path), OwnNet(graph.x.shape[1], 4).double()
    every = OwnNet(graph.x.shape[1], 4, makes=lambda graph: None).double()
    every.load_state_dict(own.state_dict())
    one, other = (run(book, config(), model=model) for model in (own, every))
    assert_equal_runs(one, other)
    assert one[2]["bytes_per_step"]["embeddings"] < other[2]["bytes_per_step"]["embeddings"]


def test_own_model_that_gives_other_rows_is_told(tmp_path):
    graph = with_few(community_graph(240, degree=4.0))
    book = cut(graph, 1, "metis", tmp_path)
    own = OwnNet(graph.x.shape[1], 4, makes=lambda graph: torch.arange(5)).double()
    words = r"gives \[5, 4\]: it has to give \[240, 4\], a row for each node, or \[\d+, 4\] of graph.read"
    with pytest.raises(InputError, match=words):
        run(book, config(), model=own)
    with pytest.raises(InputError, match=r"gives \[\d+, 9\]: it has to give \[240, 4\]"):
        run(book, config(), model=OwnNet(graph.x.shape[1], 9).double())


@pytest.mark.parametrize("multilabel", [False, True])
def test_inductive(tmp_path, multilabel):
    graph = community_graph(multilabel=multilabel)
    asked = config("sage", 0.5, inductive=True)
    alone = run(cut(graph, 1, "random", tmp_path), asked)
    assert_equal_runs(alone, run(cut(graph, 3, "random", tmp_path), asked))
    transductive = run(cut(graph, 2, "random", tmp_path), config("sage", 0.5))
    assert abs(alone[0][-1] - transductive[0][-1]) > 1e-6


def test_inductive_training_never_sees_the_other_nodes(tmp_path):
    graph = community_graph()
    hidden = ~graph.train_mask[:, 0]
    x = graph.x.copy()
    x[hidden] += 100.0
    asked = config("gcn", inductive=True)
    plain = run(cut(graph, 2, "random", tmp_path / "a"), asked)
    changed = run(cut(replace(graph, x=x), 2, "random", tmp_path / "b"), asked)
    torch.testing.assert_close(plain[0], changed[0], rtol=0, atol=0)


@pytest.mark.parametrize("features", ["rows", "standard"])
def test_prepared_features(tmp_path, features):
    graph = community_graph()
    asked = config("gcn", features=features)
    assert_equal_runs(run(cut(graph, 1, "random", tmp_path), asked), run(cut(graph, 4, "random", tmp_path), asked))


def words(graph):
    """The same graph with features most of which are zero, as rows and as sparse rows; some nodes have none."""
    dense = np.where(graph.x > 0.5, graph.x, 0)
    return replace(graph, x=dense), replace(graph, x=sparse_rows(dense))


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_sparse_features(tmp_path, model, dropout):
    _, graph = words(community_graph(directed=True))
    asked = config(model, dropout)
    alone = run(cut(graph, 1, "random", tmp_path), asked)
    for workers in (2, 4):
        assert_equal_runs(alone, run(cut(graph, workers, "random", tmp_path), asked))


def test_sparse_features_of_an_inductive_model(tmp_path):
    _, graph = words(community_graph())
    asked = config("sage", 0.5, inductive=True)
    assert_equal_runs(run(cut(graph, 1, "random", tmp_path), asked), run(cut(graph, 3, "random", tmp_path), asked))


SPARSE = {
    "exact": {},
    "vanilla": {},
    "bns": {},
    "drop-edge": {},
    "pipegcn": {},
    "psc-gcn": {"rate": 0.4, "least": 0},
    "psc-gcn with a cache": {"rate": 0.4, "least": 0, "cache_rows": 0.5},
    "isthmus": {"bits": 32, "delta": False, "guard": "off"},
}


@pytest.mark.parametrize(*each_value(case=list(SPARSE), model=["gcn", "sage", "gat"], layers=[1, 3]))
def test_sparse_features_are_as_good_as_dense_ones(tmp_path, case, model, layers):
    policy, asked = find(case.split()[0]).policy(SPARSE[case]), config(model, seed=1)
    asked = replace(asked, model=replace(asked.model, dropout=0.5, layers=layers))
    dense, sparse = words(community_graph())
    one = run(cut(dense, 3, "metis", tmp_path / "dense"), asked, policy)
    other = run(cut(sparse, 3, "metis", tmp_path / "sparse"), asked, policy)
    assert_equal_runs(one, other)


def test_more_layers_with_layer_norm(tmp_path):
    graph = community_graph()
    shape = ModelConfig(model="sage", layers=5, hidden=12, layer_norm=True, dropout=0.3)
    asked = config(model="sage", optimizer="adamw", weight_decay=0.01)
    asked = replace(asked, model=shape)
    assert_equal_runs(run(cut(graph, 1, "random", tmp_path), asked), run(cut(graph, 3, "random", tmp_path), asked))
