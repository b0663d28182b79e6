"""VR-GCN: the literal algorithm on any number of workers, exact limits, what a draw misses, resumed runs, refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from exactly import assert_equal_runs, config, run
from graphs import community_graph, cut, weighted_graph
from oracle.harness import STEPS
from oracle.vr_gcn import losses
from runs import in_folder

from isthmus.engine import TrainConfig
from isthmus.errors import InputError
from isthmus.nn import ModelConfig
from isthmus.recipes import find
from isthmus.sample import NeighbourSampler, Structure
from isthmus.sample.control_variates import missed_edges


def vr(neighbours=2, **options):
    return find("vr-gcn").policy({"neighbours": neighbours, **options})


@pytest.mark.parametrize(("model", "weighted"), [("gcn", True), ("sage", False)])
def test_steps_of_the_literal_algorithm(tmp_path, model, weighted):
    graph = weighted_graph(directed=model == "sage")
    graph = graph if weighted else replace(graph, edge_attr=None)
    shape = ModelConfig(model=model, layers=3, hidden=8, dropout=0.0)
    values = {"dtype": "float64", "optimizer": "sgd", "lr": 0.5, "seed": 2, "steps": STEPS, "eval_every": STEPS}
    first = shape.build(graph.num_features, graph.num_classes, 2).double()
    want = losses(graph, model, [p.detach() for p in first.parameters()], 2, 13, 2, STEPS, 0.5)
    for workers in (1, 2, 3, 4):
        book = cut(graph, workers, "random", tmp_path)
        got = run(book, TrainConfig(shape, batch_size=13, recipe="vr-gcn", **values), vr())[0]
        torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), rtol=0, atol=1e-10)


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_workers_agree_with_dropout_and_all_neighbours_are_the_full_graph(tmp_path, model):
    graph = community_graph(directed=model == "sage")
    one, three = (cut(graph, workers, "random", tmp_path) for workers in (1, 3))
    small = config(model, 0.5, batch_size=13)
    assert_equal_runs(run(one, small, vr()), run(three, small, vr(ahead=0)))
    full = run(cut(graph, 2, "metis", tmp_path), config(model))
    assert_equal_runs(full, run(three, config(model, batch_size=1000), vr(-1)))


def test_drawn_and_missed_edges_are_all_edges():
    """P̂ + (P - P̂) is P in every draw, and P̂ is P on average (10⁴ draws, 4 standard errors): so sums are unbiased."""
    graph = community_graph(30)
    structure, draws = Structure.of_graph(graph), 10_000
    nodes, sampler = torch.arange(30), NeighbourSampler((2,), seed=1)
    whole, _ = structure.pattern.take(nodes)
    dense = torch.zeros(30, 30, dtype=torch.float64)
    dense[whole.edge_rows, whole.indices.long()] = 1
    total, squares = torch.zeros(2, 30, 30, dtype=torch.float64)
    for step in range(draws):
        found = sampler.draw(structure, nodes.to(torch.int32), step, 0)
        drawn = torch.zeros_like(dense)
        drawn[torch.repeat_interleave(nodes, found.indptr.diff()), found.neighbours.long()] = 1
        drawn *= found.scale[:, None]
        total, squares = total + drawn, squares + drawn**2
        if step < 20:
            (block,) = sampler.blocks(structure, nodes, step).layers
            missed, weight, _ = missed_edges(whole, block, nodes, nodes)
            rest = torch.zeros_like(dense)
            rest[missed.edge_rows, missed.indices.long()] = weight
            torch.testing.assert_close(drawn + rest, dense, rtol=0, atol=1e-15)
    error = ((squares / draws - (total / draws) ** 2) / draws).clamp_min(0).sqrt()
    assert bool(((total / draws - dense).abs() <= 4 * error + 1e-12).all())


def test_a_run_goes_on_bit_for_bit_and_on_other_workers(tmp_path):
    book = cut(community_graph(), 3, "metis", tmp_path)
    whole = config("gcn", 0.5, batch_size=13, steps=9, eval_every=4)
    through, result = in_folder(book, 3, whole, tmp_path / "through", vr())
    for workers in (3, 2):
        first, _ = in_folder(book, 3, whole, tmp_path / f"stopped-{workers}", vr(), stop_at=5)
        rest, ended = in_folder(book, workers, whole, tmp_path / f"stopped-{workers}", vr(), resume=True)
        torch.testing.assert_close(torch.tensor(first + rest), torch.tensor(through), rtol=0, atol=1e-10)
        if workers == 3:
            assert first + rest == through
            for name, weight in ended.model.state_dict().items():
                assert torch.equal(weight, result.model.state_dict()[name])


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"model": "gat"}, {}, "use gcn or sage"),
        ({"fanout": "2,2,2"}, {}, "leave --fanout out"),
        ({}, {"neighbours": -2}, "neighbours must be at least 0"),
    ],
)
def test_refusals(tmp_path, changes, options, message):
    book, small = cut(community_graph(), 1, "random", tmp_path), config(changes.pop("model", "gcn"), **changes)
    with pytest.raises(InputError, match=message):
        run(book, small, find("vr-gcn").policy(options))
