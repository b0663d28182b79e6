"""Learnt rows of nodes without features: those of one process with a dense nn.Embedding, whoever owns them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from exactly import run
from graphs import community_graph, cut
from oracle.learnt_rows import LearntRows
from oracle.mini_batch_training import losses

from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.engine.learnt import read_rows
from isthmus.engine.predict import PredictConfig, predict
from isthmus.engine.verify import verify
from isthmus.errors import InputError
from isthmus.features.embedding import EmbeddingConfig, first_rows
from isthmus.local import Policy, Savings
from isthmus.minibatch import BatchPolicy
from isthmus.nn import ModelConfig
from isthmus.recipes import find

GRAPH = replace(community_graph(directed=True), x=np.empty((120, 0), np.float32), edge_attr=None)
SHAPE = ModelConfig(model="sage", layers=2, hidden=8, dropout=0.0)
VALUES = {"dtype": "float64", "optimizer": "sgd", "lr": 0.5, "seed": 2, "steps": 30, "eval_every": 30}
CONFIG = TrainConfig(SHAPE, batch_size=13, fanout="4,3", recipe="distdgl", **VALUES)


def learning(**changes):
    config = EmbeddingConfig(**{"width": 6, "lr": 0.1, **changes})
    return Policy(Savings(read_rows=False), batches=BatchPolicy(embedding=config))


@pytest.mark.parametrize(
    ("optimizer", "ways"),
    [
        ("sgd", [(3, "apart")]),
        ("adagrad", [(4, "apart"), (2, "together")]),
        ("adam", [(1, "apart"), (2, "apart"), (3, "together"), (4, "apart")]),
    ],
)
def test_thirty_steps_of_a_dense_embedding(tmp_path, optimizer, ways):
    first = SHAPE.build(6, GRAPH.num_classes, CONFIG.seed).double()
    rows = LearntRows(first_rows(torch.arange(120), 6, CONFIG.seed), optimizer, 0.1)
    want = losses(GRAPH, "sage", [p.detach() for p in first.parameters()], [4, 3], 13, 2, 30, 0.5, rows)
    assert want[-1] < want[0]
    for workers, batch in ways:
        book = cut(GRAPH, workers, "random", tmp_path)
        got = run(book, replace(CONFIG, batch=batch), learning(optimizer=optimizer))[0]
        torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), rtol=0, atol=1e-10)


def trained(book, workers, out, steps=6, policy=None, **how):
    config = replace(CONFIG, steps=steps, eval_every=3)
    work = lambda transport: train(book, config, transport, policy=policy or learning(), out=out, **how)  # noqa: E731
    return Hub(workers).run(work)[0]


def rows_of(run, step=6):
    return read_rows(run, step, (0, 120))["nodes"]


def test_a_run_goes_on_and_predicts_with_another_number_of_workers(tmp_path):
    book, told = cut(GRAPH, 4, "random", tmp_path), []
    trained(book, 3, tmp_path / "whole", note=told.append)
    assert (
        told[0] == "community has no features: every node learns a row of 6 numbers (--set embedding=, embedding_lr=)"
    )
    trained(book, 2, tmp_path / "split", steps=3)
    trained(book, 4, tmp_path / "split", resume=True)
    for name, tensor in rows_of(tmp_path / "whole").items():
        torch.testing.assert_close(tensor, rows_of(tmp_path / "split")[name], rtol=0, atol=1e-12)
    trained(book, 3, tmp_path / "same", steps=3)
    trained(book, 3, tmp_path / "same", resume=True)
    for name, tensor in rows_of(tmp_path / "whole").items():
        assert torch.equal(tensor, rows_of(tmp_path / "same")[name]), name
    written = []
    for workers in (1, 2):
        asked = PredictConfig(str(tmp_path / "whole"), out=str(tmp_path / f"{workers}.npy"), what=("class",))
        Hub(workers).run(lambda transport, asked=asked: predict(book, asked, transport, policy=learning()))
        written.append(np.load(tmp_path / f"{workers}.npy"))
    assert np.array_equal(*written)
    assert (written[0] == GRAPH.y).mean() > 0.3


def test_damaged_shards_are_refused(tmp_path):
    book = cut(GRAPH, 2, "random", tmp_path)
    trained(book, 2, tmp_path / "run")
    shards = sorted((tmp_path / "run" / "checkpoints" / "step-6").glob("rows-*"))
    assert len(shards) == 2
    shards[1].unlink()
    with pytest.raises(InputError, match="does not fit"):
        rows_of(tmp_path / "run")


def test_hogwild_learns(tmp_path):
    book = cut(GRAPH, 2, "random", tmp_path)
    policy = learning(hogwild=True)
    before = trained(book, 2, tmp_path / "one", steps=1, policy=policy).summary["train"]
    assert trained(book, 2, tmp_path / "many", steps=30, policy=policy).summary["train"] > before
    assert not torch.equal(rows_of(tmp_path / "many", 30)["rows"], rows_of(tmp_path / "one", 1)["rows"])


def test_verify_shows_it_on_the_parts(tmp_path):
    book = cut(GRAPH, 3, "random", tmp_path)
    policy = find("distdgl").policy({"embedding": 4})
    told = Hub(3).run(lambda transport: verify(book, replace(CONFIG, steps=4), transport, policy))[0]
    assert told["equal"]
    assert told["largest_difference"]["logits"] < 1e-12


def test_full_graph_recipes_need_features(tmp_path):
    book = cut(GRAPH, 1, "random", tmp_path)
    with pytest.raises(InputError, match=r"community has no features .* with --recipe distdgl"):
        train(book, TrainConfig(SHAPE, steps=1), Hub(1).transport(0))
