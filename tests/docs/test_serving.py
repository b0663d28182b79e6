"""The server of docs/serving.md answers for one node what `isthmus predict` writes for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from docs.pages import blocks
from graphs import community_graph, whole_edges
from runs import ASKED, as_threads, trained

import isthmus
from isthmus.api.result import TrainResult
from isthmus.launch import local
from isthmus.nn import ModelConfig


@pytest.mark.parametrize(("model", "theirs", "hops"), [("gcn", "GCN", 3), ("sage", "GraphSAGE", 2)])
def test_one_node_at_a_time(tmp_path, monkeypatch, model, theirs, hops):
    pytest.importorskip("torch_geometric", reason="PyG is not installed: pip install 'isthmus[pyg]'")
    from torch_geometric.data import Data

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "start", as_threads)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    graph = replace(community_graph(400, degree=3.0), edge_attr=None)
    asked = replace(ASKED, model=ModelConfig(model, hidden=8, layers=2))
    _, run, summary = trained(graph, 2, tmp_path, asked)
    result = TrainResult({**summary, "run": str(run)})
    isthmus.predict(result, "scores.npy", what="scores")
    training, serving = blocks("serving.md", "python")
    exec(training.splitlines()[1], {"torch": torch, "result": result})  # the page is ours
    data = Data(x=torch.from_numpy(graph.x).float(), edge_index=whole_edges(graph), num_nodes=graph.num_nodes)
    names = {"data": data}
    exec(serving.replace("GCN(", f"{theirs}(").replace("import GCN", f"import {theirs}"), names)
    for node in (0, 7, 133, 399):
        np.testing.assert_allclose(names["scores"](node, hops)[0], np.load("scores.npy")[node], atol=1e-6)
