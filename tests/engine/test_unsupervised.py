"""Unsupervised training: pairs drawn alike by any number of workers, the literal loss, scores of embeddings, resume."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from docs.pages import blocks
from exactly import assert_equal_runs, config, run
from graphs import community_graph, cut
from oracle.harness import STEPS
from oracle.skip_gram import losses, negatives, positive
from runs import in_folder

from isthmus.comm import Hub
from isthmus.engine import TrainConfig
from isthmus.engine.judge import HeldOutLinks
from isthmus.engine.predict import PredictConfig, predict
from isthmus.errors import InputError
from isthmus.graph.held_out import hold_out
from isthmus.minibatch import BatchConfig, BatchPolicy, NodeData, PairPolicy, batch_maker
from isthmus.nn import ModelConfig
from isthmus.partition import own_part
from isthmus.recipes import find
from isthmus.shard.load import as_tensor
from isthmus.tasks.metrics import check_metric
from isthmus.tasks.probe import probe
from isthmus.tasks.task import Task


def sparse(directed=False):
    """Return a graph with a node that has no neighbours."""
    graph = community_graph(directed=directed)
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    keep = (targets != 5) & (graph.indices != 5)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(targets[keep], minlength=graph.num_nodes))])
    return replace(graph, indptr=indptr, indices=graph.indices[keep], edge_attr=None)


def asked(loss="skip-gram", **changes):
    model = changes.pop("model", "sage")
    return config(model, 0.5, **{"batch_size": 29, "fanout": "4,3,2", "loss": loss, **changes})


def pairs_of(book, workers, policy, steps=3, **how):
    """Return (seed, positive, negatives) of every seed node of some steps in original ids, from all workers."""

    def work(transport):
        part = own_part(book, transport.rank, transport.size)
        data = NodeData(as_tensor(part.x), as_tensor(part.y), torch.arange(len(part.nodes)))
        maker = batch_maker(book, BatchConfig(40, (3, 2), pairs=policy, **how), BatchPolicy(), transport, data, seed=7)
        rows = []
        for step in range(steps):
            batch = maker.make(step)
            name = maker.pairing.original[batch.nodes]
            s = len(batch.y)
            rows += [(step, *map(int, row)) for row in torch.cat(
                [name[:s, None], name[batch.y.positive][:, None], name[batch.y.negative]], dim=1)]  # fmt: skip
        return rows

    return sorted(row for rows in Hub(workers).run(work) for row in rows)


@pytest.mark.parametrize(
    ("policy", "how"),
    [(PairPolicy(1, 2), {}), (PairPolicy(3, 4, "degree"), {}), (PairPolicy(2, 3), {"structure": "owner"})],
)
def test_pairs_are_those_of_the_literal_algorithm(tmp_path, policy, how):
    graph = sparse(directed=True)
    near = {v: sorted(graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()) for v in range(graph.num_nodes)}
    for workers in (1, 3):
        for step, v, u, *far in pairs_of(cut(graph, workers, "random", tmp_path), workers, policy, **how):
            assert u == positive(near, v, policy.walk, 7, step)
            assert far == negatives(near, v, policy.negatives, policy.by, 7, step)
            assert not set(far) & {v, *near[v]}


def test_negatives_come_by_degree(tmp_path):
    """10⁴ draws: each node comes as often as its degree^0.75 says, within four standard errors."""
    graph = community_graph()
    book, policy = cut(graph, 1, "random", tmp_path), PairPolicy(1, 50, "degree")
    drawn = pairs_of(book, 1, policy, steps=6)
    weight = np.diff(graph.indptr) ** 0.75
    near = {v: {v, *graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()} for v in range(graph.num_nodes)}
    count, expected, variance = np.zeros((3, graph.num_nodes))
    for _, v, _, *far in drawn:
        chance = weight * ~np.isin(np.arange(graph.num_nodes), list(near[v]))
        chance = chance / chance.sum()
        np.add.at(count, far, 1)
        expected += 50 * chance
        variance += 50 * chance * (1 - chance)
    assert count.sum() > 10_000
    assert (abs(count - expected) <= 4 * np.sqrt(variance)).all()


@pytest.mark.parametrize(("model", "walk", "by"), [("gcn", 1, "degree"), ("sage", 2, "uniform")])
def test_steps_of_the_literal_algorithm(tmp_path, model, walk, by):
    graph = sparse(directed=model == "sage")
    shape = ModelConfig(model=model, layers=2, hidden=6, dropout=0.0)
    values = {"dtype": "float64", "optimizer": "sgd", "lr": 0.1, "seed": 2, "steps": STEPS, "eval_every": STEPS}
    literal = TrainConfig(
        shape, batch_size=31, fanout="4,3", loss=f"skip-gram,walk={walk},negatives=2,by={by}", **values
    )
    first = shape.build(graph.num_features, 6, literal.seed).double()
    told = {"fanouts": [4, 3], "size": 31, "seed": 2, "lr": 0.1, "walk": walk, "negatives": 2, "by": by}
    want = losses(graph, model, [p.detach() for p in first.parameters()], told, STEPS)
    for workers, recipe in ((1, "distdgl"), (2, "bytegnn"), (3, "bytegnn"), (4, "graphsage")):
        got = run(cut(graph, workers, "random", tmp_path), literal, find(recipe).policy({}))[0]
        torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("model", "recipe", "changes"),
    [
        ("gat", {"threads": 2, "chunk": 7}, {}),
        ("sage", {"share": "position"}, {"rows": "owner"}),
        ("gcn", {"scheduler": "fifo"}, {"structure": "owner"}),
    ],
)
def test_workers_agree(tmp_path, model, recipe, changes):
    graph, loss = community_graph(directed=model == "gat"), "skip-gram,walk=2,negatives=2"
    alone = run(cut(graph, 1, "random", tmp_path), asked(loss, model=model), find("bytegnn").policy({}))
    book = cut(graph, 3, "metis", tmp_path)
    assert_equal_runs(alone, run(book, asked(loss, model=model, **changes), find("bytegnn").policy(recipe)))


def test_links_are_scored_alike_by_any_number_of_workers(tmp_path):
    graph = hold_out(community_graph(), 0.1)
    whole = community_graph()
    assert graph.num_edges + 2 * int(graph.held_out[:, 2].sum()) == whole.num_edges
    targets = np.repeat(np.arange(whole.num_nodes), np.diff(whole.indptr))
    edges = set(zip(targets, whole.indices, strict=True))
    assert all(((v, u) in edges) == bool(real) for v, u, real, _ in graph.held_out.tolist())
    z = torch.randn(graph.num_nodes, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    margin = {kind: [z[v] @ z[u] for v, u, *of in graph.held_out.tolist() if of == [kind, 2]] for kind in (0, 1)}
    want = np.mean([one > other for one in margin[1] for other in margin[0]])
    for workers in (1, 3):
        book = cut(graph, workers, "blocks", tmp_path)
        own = [torch.from_numpy(book.part(k).nodes.copy()) for k in range(workers)]
        work = lambda t: HeldOutLinks.of(book, t).scores(z[own[t.rank]], ("train", "test"), 0)  # noqa: B023, E731
        found = Hub(workers).run(work)[0]
        assert found["test"] == pytest.approx(want, abs=1e-12)
        assert np.isnan(found["train"])
    links = asked(metric="link-auc", steps=4, eval_every=2)
    one, two = (run(cut(graph, n, "random", tmp_path), links, find("bytegnn").policy({}))[2] for n in (1, 2))
    assert one["test"]["score"] == pytest.approx(two["test"]["score"], abs=1e-12)
    with pytest.raises(InputError, match="cut the graph with --hold-out"):
        run(cut(whole, 2, "metis", tmp_path), links, find("bytegnn").policy({}))


@pytest.mark.parametrize("several", [False, True])
def test_the_probe_is_a_logistic_regression(several):
    draw = torch.Generator().manual_seed(1)
    rows, train = torch.randn(60, 5, generator=draw), torch.arange(60) < 40
    y = (rows @ torch.randn(5, 3, generator=draw)).argmax(1)
    y = torch.nn.functional.one_hot(y, 3) if several else y
    cuts = torch.tensor_split(torch.arange(60), 3)
    one = Hub(1).run(lambda t: probe(rows, y, train, 3, t, 0))[0]
    three = torch.cat(Hub(3).run(lambda t: probe(rows[cuts[t.rank]], y[cuts[t.rank]], train[cuts[t.rank]], 3, t, 0)))
    torch.testing.assert_close(one, three, rtol=0, atol=1e-6)
    if several:
        return
    linear_model = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is not installed")
    x = (rows - rows[train].mean(0)) / rows[train].std(0, unbiased=False)
    known = linear_model.LogisticRegression(C=1 / (2 * 0.1 * 40), tol=1e-10).fit(x[train], y[train])
    torch.testing.assert_close(one.softmax(1), torch.from_numpy(known.predict_proba(x)), rtol=0, atol=1e-4)


def test_a_run_goes_on_bit_for_bit_and_gives_embeddings(tmp_path):
    book, policy = cut(community_graph(), 2, "metis", tmp_path), find("bytegnn").policy({})
    whole = asked("skip-gram,walk=2", steps=8, eval_every=4)
    through, result = in_folder(book, 2, whole, tmp_path / "through", policy)
    first, _ = in_folder(book, 2, whole, tmp_path / "stopped", policy, stop_at=3)
    rest, ended = in_folder(book, 2, whole, tmp_path / "stopped", policy, resume=True)
    assert first + rest == through
    for name, weight in ended.model.state_dict().items():
        assert torch.equal(weight, result.model.state_dict()[name])
    out = tmp_path / "z.npy"
    told = Hub(2).run(lambda t: predict(book, PredictConfig(str(tmp_path / "through"), str(out)), t, policy=policy))[0]
    assert told["what"] == ["embedding"]
    assert np.load(out).shape == (book.nodes, 8)
    with pytest.raises(InputError, match="has learnt embeddings, no classes"):
        predict(book, PredictConfig(str(tmp_path / "through"), str(out), ("class",)), Hub(1).transport(0))


@pytest.mark.parametrize(
    ("loss", "changes", "recipe", "message"),
    [
        ("skip-gram", {}, "exact", "give --recipe bytegnn"),
        ("skip-gram", {"fanout": None}, "ladies", "ladies does not draw"),
        ("skip-gram", {"batch": "together"}, "bytegnn", "give --batch apart"),
        ("skip-gram", {"metric": "accuracy"}, "bytegnn", "use --metric probe or link-auc"),
        ("cross-entropy", {"metric": "probe"}, "bytegnn", "give --loss skip-gram"),
        ("skip-gram,walk=0", {}, "bytegnn", "must be at least 1"),
        ("skip-gram,by=age", {}, "bytegnn", "uniform, degree"),
    ],
)
def test_refusals(tmp_path, loss, changes, recipe, message):
    book, policy = cut(community_graph(), 1, "random", tmp_path), find(recipe).policy({})
    with pytest.raises(InputError, match=message):
        run(book, asked(loss, recipe=recipe, **changes), policy)


def test_operators_of_the_page(tmp_path, monkeypatch):
    (shown,) = blocks("unsupervised.md", "python")
    (tmp_path / "faithful_pairs.py").write_text(shown)
    monkeypatch.syspath_prepend(tmp_path)
    book = cut(community_graph(), 2, "random", tmp_path)
    usual, own = (find("bytegnn").policy(given) for given in ({}, {"operators": "faithful_pairs:Faithful"}))
    short = asked(steps=3, eval_every=3, batch_size=120)
    one, other = (run(book, short, policy)[0] for policy in (usual, own))
    assert one[0] == other[0]
    assert one[1] != other[1]


def test_values_have_no_probe():
    with pytest.raises(InputError, match="not defined for 1 value"):
        check_metric("probe", Task("values", 1), embeds=True)
