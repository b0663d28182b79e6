"""Vertex-cuts: masters and mirrors give what one process gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from exactly import assert_equal_runs, config, run
from graphs import community_graph, cut, with_few

from isthmus.comm import Hub
from isthmus.engine import train
from isthmus.errors import InputError
from isthmus.partition import partition


def vertex(graph, parts, folder, method="ebv"):
    return partition(graph, parts, method, cut="vertex", out=folder / f"vertex-{method}-{parts}")


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
@pytest.mark.parametrize(
    ("workers", "method", "dropout", "directed"), [(1, "ebv", 0.5, False), (2, "hep", 0.5, True), (4, "ebv", 0.0, True)]
)
def test_replicas_agree_with_one_process(tmp_path, model, workers, method, dropout, directed):
    graph = replace(community_graph(directed=directed), edge_attr=None)
    alone = run(cut(graph, 1, "random", tmp_path), config(model, dropout))
    assert_equal_runs(alone, run(vertex(graph, workers, tmp_path, method), config(model, dropout)))


def test_few_training_nodes_self_loops_and_layer_norm(tmp_path):
    graph = replace(with_few(community_graph(240, degree=4.0)), edge_attr=None)
    targets = np.repeat(np.arange(240), np.diff(graph.indptr))
    loops = np.arange(0, 240, 7)
    keys = np.unique(np.concatenate([targets * 240 + graph.indices, loops * 241]))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(keys // 240, minlength=240))])
    graph = replace(graph, indptr=indptr.astype(np.int64), indices=(keys % 240).astype(np.int32))
    asked = config("sage", 0.5)
    asked = replace(asked, model=replace(asked.model, layer_norm=True))
    alone, book = run(cut(graph, 1, "random", tmp_path), asked), vertex(graph, 3, tmp_path, "random")
    assert_equal_runs(alone, run(book, asked))


def test_several_parts_on_a_worker_and_resumed(tmp_path):
    graph, found = replace(community_graph(), edge_attr=None), []
    book, alone = vertex(graph, 4, tmp_path), run(cut(graph, 1, "random", tmp_path), config("gcn", 0.5))

    def go(steps, resume):
        def work(transport):
            watch = (lambda line: found.append(line["loss"])) if transport.rank == 0 else None
            train(book, config("gcn", 0.5, steps=steps), transport, out=tmp_path / "run", resume=resume, watch=watch)

        Hub(2).run(work)

    go(12, False)
    go(20, True)
    torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), alone[0], rtol=0, atol=1e-10)


def test_what_vertex_cuts_cannot_do_is_said(tmp_path):
    book = vertex(replace(community_graph(), edge_attr=None), 2, tmp_path)
    with pytest.raises(InputError, match="inductive"):
        run(book, config("sage", inductive=True))
    with pytest.raises(InputError, match="leave --cut out"):
        run(book, config("sage", cut="cover"))
