"""Training by mini-batches: any number of workers, any way of asking and of working ahead, one result."""

from __future__ import annotations

from dataclasses import replace

import pytest
import runs
import torch
from exactly import assert_equal_runs, config, run
from graphs import community_graph, cut, sparse_rows, weighted_graph, with_few
from oracle.mini_batch_training import losses
from products import each_value
from torch import nn

import isthmus
from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.engine.verify import verify
from isthmus.errors import InputError
from isthmus.local import Policy, Savings
from isthmus.minibatch import BatchPolicy
from isthmus.nn import GCNConv, ModelConfig, distribute
from isthmus.recipes import find


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


@pytest.mark.parametrize(*each_value(weighted=[False, True], model=["gcn", "sage"]))
def test_thirty_steps_of_the_literal_algorithm(tmp_path, model, weighted):
    graph = weighted_graph(directed=model == "sage")
    graph = graph if weighted else replace(graph, edge_attr=None)
    shape = ModelConfig(model=model, layers=3, hidden=8, dropout=0.0)
    values = {"dtype": "float64", "optimizer": "sgd", "lr": 0.5, "seed": 2, "steps": 30, "eval_every": 30}
    literal = TrainConfig(shape, batch_size=13, fanout="4,3,2", **values)
    first = shape.build(graph.num_features, graph.num_classes, literal.seed).double()
    want = losses(graph, model, [p.detach() for p in first.parameters()], [4, 3, 2], 13, 2, 30, 0.5)
    for workers, batch in ((1, "apart"), (2, "together"), (3, "apart"), (4, "together")):
        got = run(cut(graph, workers, "random", tmp_path), replace(literal, batch=batch), batches())[0]
        torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), rtol=0, atol=1e-10)


class Normed(nn.Module):
    """A model with a norm over all nodes between its two convolutions."""

    def __init__(self, features, classes):
        super().__init__()
        self.first, self.norm, self.last = GCNConv(features, 6), nn.BatchNorm1d(6), GCNConv(6, classes)

    def forward(self, graph, x):
        return self.last(graph, torch.relu(self.norm(self.first(graph, x))))


def test_auto_is_together_where_a_norm_would_count_nodes_twice(tmp_path):
    torch.manual_seed(1)
    graph, model = community_graph(), distribute(Normed(10, 4).double())
    small = config(batch_size=13, fanout="4,3", optimizer="sgd")
    one, two, apart = (
        run(cut(graph, workers, method, tmp_path), replace(small, batch=batch), batches(), model)
        for workers, method, batch in ((1, "blocks", None), (3, "blocks", None), (3, "random", "apart"))
    )
    assert_equal_runs(one, two)
    assert not torch.allclose(one[0], apart[0])


def in_folder(book, workers, asked, folder, policy=None, **how):
    return runs.in_folder(book, workers, asked, folder, policy or batches(ahead=3), **how)


@pytest.mark.parametrize("batch", ["apart", "together"])
def test_a_run_goes_on_in_the_middle_of_an_epoch(tmp_path, batch):
    """Stopped with batches made ahead, it goes on bit for bit, and on another number of workers up to rounding."""
    book = cut(community_graph(), 3, "metis", tmp_path)
    whole = asked(batch=batch, steps=11, eval_every=5)
    through, result = in_folder(book, 3, whole, tmp_path / "through")
    for workers in (3, 2):
        folder = tmp_path / f"stopped-{workers}"
        first, none = in_folder(book, 3, whole, folder, stop_at=6)
        assert none is None
        assert len(first) == 7  # the others hear of it in the next step
        rest, ended = in_folder(book, workers, whole, folder, resume=True)
        if workers == 3:
            assert first + rest == through
            for name, weight in ended.model.state_dict().items():
                assert torch.equal(weight, result.model.state_dict()[name])
        torch.testing.assert_close(torch.tensor(first + rest), torch.tensor(through), rtol=0, atol=1e-10)


def test_early_stop_leaves_batches_that_were_made_ahead(tmp_path):
    book = cut(community_graph(), 3, "random", tmp_path)
    found, result = in_folder(book, 3, asked(steps=60, eval_every=1, patience=2, lr=0.3), tmp_path / "run")
    assert len(found) < 60
    assert result.summary["steps"] == len(found)


def test_the_record_counts_rows_and_bytes(tmp_path):
    book = cut(community_graph(), 3, "random", tmp_path)
    far = asked(rows="owner")
    apart = in_folder(book, 3, far, tmp_path / "apart")[1].summary
    coded = in_folder(book, 3, far, tmp_path / "coded", find("distdgl").policy({"bits": 16}))[1].summary
    assert apart["rows"]["sent"] > 0
    assert apart["bytes_per_step"]["embeddings"] == 0 < apart["bytes_per_step"]["ids"]
    # Workers take the seed nodes that they own, so no label travels.
    assert apart["bytes_per_step"]["features"] == 4 * coded["bytes_per_step"]["features"] > 0
    assert coded["rows"]["sent"] == apart["rows"]["sent"]


@pytest.mark.parametrize(
    ("changes", "way", "message"),
    [
        ({"fanout": "4,3"}, {}, r"draws for 2 hop\(s\), but the model has 3 layer\(s\)"),
        ({"batch": "together"}, {"share": "even"}, "share must be owner"),
    ],
)
def test_refusals(tmp_path, changes, way, message):
    book = cut(community_graph(), 2, "random", tmp_path)
    with pytest.raises(InputError, match=message):
        run(book, asked(**changes), batches(**way))


@pytest.mark.parametrize(("fanout", "message"), [("4", "aggregates more than 1 times"), ("4,3,2", "aggregate 3 times")])
def test_a_model_of_ones_own_has_one_convolution_per_fanout(tmp_path, fanout, message):
    book = cut(community_graph(), 2, "random", tmp_path)
    with pytest.raises(InputError, match=message):
        run(book, asked(fanout=fanout), batches(), distribute(Normed(10, 4).double()))


@pytest.mark.parametrize("batch", ["apart", "together"])
def test_verify_shows_it_on_the_users_parts(tmp_path, batch):
    book, policy = cut(community_graph(), 3, "random", tmp_path), find("distdgl").policy()
    found = Hub(3).run(lambda transport: verify(book, asked(batch=batch, steps=5), transport, policy))[0]
    assert found["equal"], found


def test_pygs_models_by_name(tmp_path):
    """Dropout of PyG's own, on rows and on attention, draws by node as ours does."""
    pytest.importorskip("torch_geometric")
    from torch_geometric.nn.models import GAT

    torch.manual_seed(0)
    graph = replace(community_graph(), edge_attr=None)
    model = GAT(10, 8, 3, 4, v2=True, heads=2, dropout=0.4, add_self_loops=True).double()
    one, two, three = (
        run(cut(graph, workers, "random", tmp_path), asked(batch=batch), batches(), distribute(model))
        for workers, batch in ((1, None), (2, None), (3, "together"))
    )
    assert_equal_runs(one, two)
    assert_equal_runs(one, three)


def test_a_loop_of_ones_own_takes_no_recipe_of_mini_batches(tmp_path):
    with pytest.raises(InputError, match="NeighborLoader"):
        isthmus.Worker(cut(community_graph(), 1, "random", tmp_path), recipe="distdgl")


def whole_inputs(model, **changes):
    """A run without dropout, in float32."""
    return config(model, **{"batch_size": 13, "fanout": "4,3,2", "dtype": "float32", **changes})


@pytest.mark.parametrize(("model", "batch"), [("sage", "apart"), ("sage", "together"), ("gat", "apart")])
def test_bf16_rounds_where_rows_are_gathered_what_the_products_would_round(tmp_path, monkeypatch, model, batch):
    """So half the bytes of features cross, and nothing else changes; evaluations stay in float32."""
    book, shape = cut(community_graph(), 2, "random", tmp_path), whole_inputs(model, batch=batch)
    full, halved = (run(book, shape, find("distdgl").policy({"precision": name})) for name in ("fp32", "bf16"))
    far = float(((full[0] - halved[0]).abs() / full[0]).max())
    assert 1e-5 < far < 0.05
    monkeypatch.setattr("isthmus.engine.plane.Model", GCNConv)  # as if the model were not one of the library's own
    later = run(book, shape, find("distdgl").policy({"precision": "bf16"}))
    assert torch.equal(halved[0], later[0])


@pytest.mark.parametrize("sparse", [False, True])
def test_bf16_rows_travel_in_half_the_bytes(tmp_path, sparse):
    graph = community_graph()
    graph = replace(graph, x=sparse_rows(graph.x)) if sparse else graph
    book, shape = cut(graph, 2, "random", tmp_path), replace(whole_inputs("sage"), rows="owner")

    def pulled(precision):
        def work(transport):
            train(book, shape, transport, policy=find("distdgl").policy({"precision": precision}))
            return transport.sent

        return sum(sum(sent.values()) for sent in Hub(2).run(work))

    assert pulled("bf16") < 0.8 * pulled("fp32")


def test_chances_of_draws_by_weight_in_single_precision(tmp_path):
    """Also where edges do not count by their weights, so that an edge's weight is one over its chance alone."""
    book, policy = cut(weighted_graph(), 2, "random", tmp_path), find("distdgl").policy({"draw": "weighted"})
    single, double = (run(book, asked(dtype=dtype, edge_weights="none"), policy)[0] for dtype in ("float32", "float64"))
    torch.testing.assert_close(single, double, rtol=1e-3, atol=0)


def test_graphsage_is_distdgl_with_the_papers_sizes(tmp_path):
    book, given = cut(community_graph(), 2, "random", tmp_path), {"batch_size": 512, "fanout": "25,10,10"}
    sizes = {"batch_size": None, "fanout": None}
    want, got = (
        run(book, asked(**how), find(name).policy()) for name, how in (("distdgl", given), ("graphsage", sizes))
    )
    assert_equal_runs(want, got, 0)


def test_few_rows_is_distdgl_where_nothing_is_left_out(tmp_path):
    book, whole = cut(community_graph(), 2, "random", tmp_path), {"draw": "uniform", "precision": "fp32"}
    given = {"distdgl": {}, "few-rows": {**whole, "cache_rows": 0.0}}
    want, got = (run(book, asked(), find(name).policy(how)) for name, how in given.items())
    assert_equal_runs(want, got, 0)


def test_few_rows_on_any_number_of_workers(tmp_path):
    alone, *more = (
        run(cut(community_graph(), n, "random", tmp_path), asked(), find("few-rows").policy()) for n in (1, 2, 3)
    )
    for several in more:
        assert_equal_runs(alone, several)
