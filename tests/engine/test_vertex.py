"""Vertex-cuts: masters and mirrors give what one process gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from exactly import assert_equal_runs, config, plainly, run
from graphs import community_graph, cut, weighted_graph, with_few

from isthmus.comm import Hub
from isthmus.engine import train
from isthmus.errors import InputError
from isthmus.partition import partition

pyg = pytest.importorskip("torch_geometric.nn", reason="PyG is not installed: pip install 'isthmus[pyg]'")


def vertex(graph, parts, folder, method="ebv"):
    return partition(graph, parts, method, cut="vertex", out=folder / f"vertex-{method}-{parts}")


@pytest.mark.parametrize(
    ("model", "workers", "dropout", "few"),
    [
        ("gcn", 1, 0.5, False),
        ("gcn", 4, 0.0, True),
        ("sage", 2, 0.0, False),
        ("sage", 3, 0.5, True),
        ("gat", 2, 0.5, False),
        ("gat", 3, 0.0, False),
        ("gat", 4, 0.5, True),
    ],
)
def test_weighted_edges(tmp_path, model, workers, dropout, few):
    """Weighted degrees are sums over the edges of all replicas; with few training nodes some rows are computed."""
    graph = weighted_graph(directed=workers != 3)
    graph = with_few(graph) if few else graph
    asked = config(model, dropout)
    alone, book = run(cut(graph, 1, "random", tmp_path), asked), vertex(graph, workers, tmp_path)
    assert_equal_runs(alone, run(book, asked))
    if workers == 4:
        assert not torch.allclose(run(book, replace(asked, edge_weights="none"))[0], alone[0], atol=1e-6)
        found = Hub(2).run(lambda transport: train(book, asked, transport).summary["test"])  # two parts each
        assert found == [alone[2]["test"]] * 2


@pytest.mark.parametrize("weighted", [False, True])
def test_gcn_convolutions_of_pyg(tmp_path, weighted):
    torch.manual_seed(0)
    graph, model = weighted_graph(directed=True), pyg.GCN(10, 6, 2, 4).double()
    graph = graph if weighted else replace(graph, edge_attr=None)
    want = plainly(model, graph, edge_weight=torch.from_numpy(graph.edge_attr) if weighted else None)
    found = run(vertex(graph, 3, tmp_path), config(), None, model)
    for one, other in zip(found, want, strict=False):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_other_convolutions_of_pyg_are_refused(tmp_path):
    book = vertex(weighted_graph(columns=2), 2, tmp_path)
    for model in (pyg.GAT(10, 6, 2, 4, edge_dim=2), pyg.GraphSAGE(10, 6, 2, 4)):
        with pytest.raises(InputError, match=r"Conv reads all edges of a node.*isthmus partition --cut edge"):
            run(book, config(), None, model.double())


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
