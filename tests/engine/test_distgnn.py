"""DistGNN against its literal algorithm, step by step; its limits; and resumed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from exactly import assert_equal_runs, config, run
from graphs import cut
from oracle.cdfgnn import Options
from oracle.distgnn import Distgnn
from oracle.vertex import LR, SHAPE, graph_of, oracle_of, vertex

from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.errors import InputError
from isthmus.local import Savings
from isthmus.recipes import find

STEPS, PUBLISHED = 20, "as-published"
NARROW = Savings(aggregate_once=False, overlap=False, read_rows=False, cover=False)  # rows are transformed, then summed
ASKED = TrainConfig(
    model=SHAPE, recipe="distgnn", optimizer="sgd", lr=LR, steps=STEPS, eval_every=STEPS, dtype="float64"
)


def losses_of(book, given, asked, savings=None, **where):
    lines, policy = [], find("distgnn").policy(given)
    policy = policy if savings is None else replace(policy, savings=savings)

    def work(transport):
        watch = lines.append if transport.rank == 0 else None
        train(book, asked, transport, policy=policy, watch=watch, **where)

    Hub(book.num_parts).run(work)
    return [line["loss"] for line in lines]


@pytest.mark.parametrize(
    ("workers", "given", "late"),
    [
        (2, {"staleness": 1}, {"staleness": 1}),
        (3, {"staleness": 5}, {"staleness": 5}),
        (4, {"staleness": 2, "start": PUBLISHED}, {"staleness": 2, "warm": False}),
    ],
)
def test_agrees_with_the_paper_step_by_step(tmp_path, workers, given, late):
    graph = graph_of()
    book = vertex(graph, workers, tmp_path)
    dense = oracle_of(book, graph, Options(adapt=False))
    oracle = Distgnn(dense.adjacency, dense.replica, dense.owner, dense.weights, dense.options, **late)
    want = oracle.train(graph.x, graph.y, graph.train_mask[:, 0], STEPS, LR)
    np.testing.assert_allclose(losses_of(book, given, ASKED, NARROW), want, rtol=1e-9)


@pytest.mark.parametrize(("workers", "given"), [(1, {}), (3, {"staleness": 0})])
def test_cd_0_and_one_worker_are_exact(tmp_path, workers, given):
    graph = graph_of()
    alone = run(cut(graph, 1, "random", tmp_path), config("sage", 0.5))
    assert_equal_runs(alone, run(vertex(graph, workers, tmp_path), config("sage", 0.5), find("distgnn").policy(given)))


def test_resumed_bit_for_bit(tmp_path):
    book = vertex(graph_of(), 3, tmp_path)
    asked = replace(ASKED, steps=10, eval_every=10, model=replace(SHAPE, dropout=0.5, layers=3))
    parted = losses_of(book, {"staleness": 2}, asked, out=tmp_path / "parted")
    parted += losses_of(book, {"staleness": 2}, replace(asked, steps=20), out=tmp_path / "parted", resume=True)
    assert parted == losses_of(book, {"staleness": 2}, replace(asked, steps=20), out=tmp_path / "whole")


def test_other_cuts_are_refused(tmp_path):
    with pytest.raises(InputError, match="--cut vertex"):
        run(cut(graph_of(), 2, "random", tmp_path), config(), find("distgnn").policy({}))
