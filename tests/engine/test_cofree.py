"""CoFree-GNN against its literal algorithm; one worker is exact; no rows cross."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from exactly import assert_equal_runs, config
from exactly import run as whole_run
from graphs import community_graph, cut
from oracle import cofree
from oracle.harness import LR, exact_losses, first_weights, run

from isthmus import Worker
from isthmus.comm import Hub
from isthmus.errors import InputError
from isthmus.local import LocalGraph, isolated_graph
from isthmus.recipes import find
from isthmus.tasks.losses import build_loss
from isthmus.tasks.task import Task

FEW = 12


def vertex(folder, workers, directed=True, method="ebv"):
    graph = replace(community_graph(60, directed=directed), edge_attr=None)
    return graph, cut(graph, workers, method, folder, cut="vertex")


@pytest.mark.parametrize(("workers", "model", "directed", "method"), [
    (2, "gcn", True, "ebv"), (3, "sage", True, "random"), (4, "gcn", False, "ne"), (2, "sage", False, "hdrf"),
])  # fmt: skip
def test_agrees_with_the_paper_step_by_step(tmp_path, workers, model, directed, method):
    graph, book = vertex(tmp_path, workers, directed, method)
    want = np.array(cofree.losses(graph, book, model, first_weights(graph, model), FEW, LR))
    got, summary = run(book, model, find("cofree").policy(), FEW)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-10)
    assert np.abs(want - exact_losses(graph, model, FEW)).max() > 1e-6
    sent = summary["bytes_per_step"]
    assert {kind for kind in ("embeddings", "gradients") if sent.get(kind)} == set()


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_one_worker_is_exact(tmp_path, model):
    graph, book = vertex(tmp_path, 1)
    alone = whole_run(cut(graph, 1, "random", tmp_path), config(model, 0.5))
    assert_equal_runs(alone, whole_run(book, config(model, 0.5), find("cofree").policy()))


def test_replicas_of_a_node_count_once(tmp_path):
    graph, book = vertex(tmp_path, 4)

    def work(transport):
        local = LocalGraph.from_part(book.part(transport.rank), transport, book.symmetric)
        return local.nodes, isolated_graph(local).runtime.whole.shares

    found = torch.zeros(graph.num_nodes, dtype=torch.float64)
    for nodes, shares in Hub(4).run(work):
        found.index_add_(0, nodes, shares)
    torch.testing.assert_close(found, torch.ones_like(found))


LOSSES = [
    (kind, name)
    for kind, names in {
        "classes": (None, "cross-entropy,smoothing=0.1,weights=1/2/3", "focal", "focal,weights=1/2/3"),
        "labels": (None, "bce,weights=1/2/3", "focal"),
        "values": (None, "mae", "huber"),
    }.items()
    for name in names
]


@pytest.mark.parametrize(("kind", "name"), LOSSES)
def test_every_loss_counts_rows_as_often_as_it_is_told(kind, name):
    """A row that counts twice is the row twice."""
    draw, transport = torch.Generator().manual_seed(0), Hub(1).transport(0)
    logits = torch.randn(4, 3, dtype=torch.float64, generator=draw)
    y = {"classes": torch.tensor([0, 2, 1, 2]), "labels": (logits > 0).long(), "values": -logits.flip(0)}[kind]
    loss, twice = build_loss(name, Task(kind, 3), y, transport), torch.tensor([0, 1, 1, 3])
    some = loss.terms(logits, y, torch.tensor([1.0, 2.0, 0.0, 1.0], dtype=torch.float64))
    same = loss.terms(logits[twice], y[twice], None)
    torch.testing.assert_close(torch.stack([*map(torch.as_tensor, some)]).double(),
                               torch.stack([torch.as_tensor(v, dtype=torch.float64) for v in same]))  # fmt: skip


def test_what_it_cannot_do_is_refused(tmp_path):
    _, book = vertex(tmp_path, 1)
    with pytest.raises(InputError, match="take another recipe"):
        Worker(book, recipe="cofree", transport=Hub(1).transport(0))
    with pytest.raises(InputError, match="one value per row"):
        whole_run(book, config("gcn", loss="own_losses:a_mean"), find("cofree").policy())
