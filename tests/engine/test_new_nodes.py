"""Scoring graphs that a run was not trained on, starting from its weights, and its weights in plain torch and PyG."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import community_graph, cut, npz, whole_edges
from runs import ASKED, SHAPE, as_threads, trained

import isthmus
from isthmus.api import TrainResult
from isthmus.comm import Hub
from isthmus.engine import train
from isthmus.engine.saved_run import SavedRun
from isthmus.errors import InputError
from isthmus.launch import local
from isthmus.nn import ModelConfig


@pytest.fixture(autouse=True)
def threads(monkeypatch):
    """Workers are threads of this process."""
    monkeypatch.setattr(local, "start", as_threads)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)


def ring(nodes: int = 200):
    """A long ring, so that most nodes are far from any change; as arrays of an .npz file."""
    draw = np.random.default_rng(0)
    edges = np.array([(i, (i + step) % nodes) for i in range(nodes) for step in (1, 2)]).T
    kind = draw.integers(3, size=nodes)
    return {
        "edge_index": np.concatenate([edges, edges[::-1]], axis=1),
        "x": draw.normal(size=(nodes, 10)).astype(np.float32),
        "y": draw.integers(4, size=nodes),
        **{name: kind == k for k, name in enumerate(("train_mask", "val_mask", "test_mask"))},
    }


def grown(arrays):
    """Three nodes and ten edges more, all near node 0."""
    more = np.array([[200, 200, 200, 201, 201, 201, 202, 202, 202, 202], [0, 1, 199, 200, 0, 2, 201, 200, 1, 198]])
    draw = np.random.default_rng(5)
    masks = {name: np.append(arrays[name], [False] * 3) for name in ("train_mask", "val_mask", "test_mask")}
    edges = np.concatenate([arrays["edge_index"], more, more[::-1]], axis=1)
    x = np.concatenate([arrays["x"], draw.normal(size=(3, 10)).astype(np.float32)])
    return {"edge_index": edges, "x": x, "y": np.append(arrays["y"], [-1] * 3), **masks}


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_a_graph_that_has_grown(tmp_path, model, monkeypatch):
    """Old nodes far from the change keep their scores to the bit, and nothing is cut again."""
    np.savez(tmp_path / "before.npz", **ring())
    np.savez(tmp_path / "after.npz", **grown(ring()))
    book = isthmus.partition(tmp_path / "before.npz", 3, tmp_path / "parts", quiet=True)
    asked = replace(ASKED, model=replace(SHAPE, model=model))
    Hub(3).run(lambda transport: train(book, asked, transport, out=tmp_path / "run"))
    before = isthmus.predict(tmp_path / "run", tmp_path / "before.npy", what="scores")
    monkeypatch.setattr("isthmus.launch.start.partition", None)  # must not be called
    after = isthmus.predict(tmp_path / "run", tmp_path / "after.npy", what="scores", source=tmp_path / "after.npz")
    assert (before["rows"], after["rows"]) == (200, 203)
    old, new = np.load(tmp_path / "before.npy"), np.load(tmp_path / "after.npy")
    near = np.array([i for i in range(200) if min(i, 200 - i) <= 10])
    far = np.setdiff1d(np.arange(200), near)
    assert np.array_equal(new[far], old[far])
    assert not np.array_equal(new[near], old[near])
    monkeypatch.undo()
    monkeypatch.setattr(local, "start", as_threads)
    parts = isthmus.partition(tmp_path / "after.npz", 2, tmp_path / "others", quiet=True)
    isthmus.predict(tmp_path / "run", tmp_path / "cut.npy", what="scores", source=parts.folder, workers=2)
    np.testing.assert_allclose(np.load(tmp_path / "cut.npy"), new, atol=1e-5)


def test_another_graph_is_cut_for_it(tmp_path):
    _, run, _ = trained(community_graph(), 2, tmp_path, ASKED)
    other = npz(tmp_path / "other.npz", x=np.random.default_rng(3).normal(size=(120, 10)).astype(np.float32))
    assert isthmus.predict(run, tmp_path / "other.npy", what="class", source=other)["rows"] == 120
    narrow = npz(tmp_path / "narrow.npz", x=np.ones((120, 3), np.float32))
    with pytest.raises(InputError, match=r"has 3 features, .* was trained with 10"):
        isthmus.predict(run, tmp_path / "narrow.npy", source=narrow)


def test_means_of_another_graph_are_refused(tmp_path):
    book, run, _ = trained(community_graph(), 1, tmp_path, replace(ASKED, features="standard"))
    with pytest.raises(InputError, match="scale the features beforehand"):
        isthmus.predict(run, tmp_path / "other.npy", source=book.folder)


def test_start_from_a_run(tmp_path):
    book, run, _ = trained(community_graph(), 2, tmp_path, ASKED)
    best = SavedRun.read(run).best
    begun = replace(ASKED, init=str(run), steps=1, eval_every=1, lr=1e-12)
    result = Hub(2).run(lambda transport: train(book, begun, transport))[0]
    torch.testing.assert_close(dict(result.model.state_dict()), best, rtol=0, atol=1e-6)
    other, alone = replace(begun, model=ModelConfig("gcn", hidden=5)), cut(community_graph(), 1, "blocks", tmp_path)
    with pytest.raises(InputError, match="do not fit"):
        Hub(1).run(lambda transport: train(alone, other, transport))


@pytest.mark.parametrize(("model", "theirs"), [("gcn", "GCN"), ("sage", "GraphSAGE"), ("gat", "GAT")])
def test_weights_load_into_pyg(tmp_path, model, theirs):
    pyg = pytest.importorskip("torch_geometric.nn", reason="PyG is not installed: pip install 'isthmus[pyg]'")
    graph = community_graph()
    asked = replace(ASKED, model=ModelConfig(model, hidden=8, heads=2, layers=3), dtype="float64")
    _, run, summary = trained(graph, 2, tmp_path, asked)
    result = TrainResult({**summary, "run": str(run)})
    options = {"heads": 2, "act": "elu"} if model == "gat" else {}
    net = getattr(pyg, theirs)(10, 8, 3, 4, **options).double()
    net.load_state_dict(result.state_dict("pyg"))
    isthmus.predict(result, tmp_path / "scores.npy", what="scores")
    scores = net.eval()(torch.from_numpy(graph.x), whole_edges(graph)).softmax(1)
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), scores.detach(), atol=1e-6)
    assert result.model.state_dict().keys() == result.state_dict().keys()


def test_predictions_of_a_loop_of_ones_own(tmp_path, monkeypatch):
    """`worker.save` keeps what predict needs, and what a scheduler needs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "ownnet.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, features, classes, hidden=12):\n"
        "        super().__init__()\n"
        "        self.first, self.last = nn.Linear(features, hidden), nn.Linear(hidden, classes)\n"
        "    def forward(self, graph, x):\n"
        "        return self.last(graph.aggregate(self.first(x)))\n"
    )
    from ownnet import Net

    book = cut(community_graph(), 2, "random", tmp_path)

    def work(transport):
        with isthmus.Worker(book, transport=transport) as worker:
            model = Net(10, 4)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
            worker.prepare(model, optimizer)
            for _ in range(3):
                optimizer.zero_grad()
                out = model(worker.graph, worker.x)[worker.train_mask]
                worker.step(torch.nn.functional.cross_entropy(out, worker.y[worker.train_mask]))
                scheduler.step()
            kept = {"scheduler": scheduler.state_dict(), "noise": torch.arange(3)}
            worker.save("kept", extra=kept)
            assert worker.restore("kept") == 3
            scheduler.load_state_dict(worker.extra["scheduler"])
            assert torch.equal(worker.extra["noise"], torch.arange(3))
            return worker.graph.nodes, worker.predict(model).detach()

    nodes, logits = (torch.cat(pieces) for pieces in zip(*Hub(2).run(work), strict=True))
    isthmus.predict("kept", "kept.npy", what="scores", model="ownnet:Net")
    want = logits[nodes.argsort()].softmax(1)
    np.testing.assert_allclose(np.load("kept.npy"), want, atol=1e-6)
    with pytest.raises(InputError, match="imported and run only if you say so"):
        isthmus.predict("kept", "again.npy")
    with pytest.raises(InputError, match="extra holds a set"):
        Hub(1).run(lambda transport: _save_set(book, transport))
    sys.modules.pop("ownnet", None)


def _save_set(book, transport):
    with isthmus.Worker(book, transport=transport) as worker:
        model = torch.nn.Linear(10, 4)
        worker.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        worker.save("wrong", extra={"seen": {1, 2}})
