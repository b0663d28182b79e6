"""Predictions of a run: every node, in original ids, the numbers that the model gives, whoever owns the node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import community_graph, sparse_rows
from runs import ASKED, SHAPE, predicted, trained
from torch import nn

from isthmus.comm import Hub
from isthmus.engine import PredictConfig, predict, predictions
from isthmus.engine.prepare import Views
from isthmus.engine.saved_run import SavedRun
from isthmus.engine.step import predict as logits_of
from isthmus.errors import InputError
from isthmus.local import Policy, Savings


def reference(book, run):
    """Logits [N, C] of the best weights in original ids, as evaluation computes them."""
    whole = SavedRun.read(run)

    def work(transport):
        views = Views.of(book, whole.config, Policy(Savings(cover=False)), transport)
        return views.scored[-1].graph.nodes, logits_of(whole.model(book), views.scored[-1], 0)

    nodes, logits = (torch.cat(pieces) for pieces in zip(*Hub(book.num_parts).run(work), strict=True))
    return logits[nodes.argsort()]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_the_logits_of_the_best_weights(tmp_path, model, workers):
    graph = community_graph()
    book, run, summary = trained(graph, workers, tmp_path, replace(ASKED, model=replace(SHAPE, model=model)))
    done = predicted(book, run, tmp_path / "all.npy", ("class", "score", "embedding"))
    assert done["step"] == summary["best_step"]
    said, score, embedding = (np.load(file) for file in done["files"])
    logits = reference(book, run)
    assert np.array_equal(said, logits.argmax(1).numpy())
    assert np.array_equal(score, logits.softmax(1).numpy())
    assert (said.dtype, score.dtype, embedding.dtype) == (np.int64, np.float32, np.float32)
    test = graph.test_mask[:, 0]
    assert (said == graph.y)[test].mean() == summary["test"]["score"]
    assert embedding.shape == (120, 8)


@pytest.mark.parametrize("inductive", [False, True])
def test_workers_agree(tmp_path, inductive):
    """A run on one worker and the same on three: the same scores and embeddings, whoever owns the nodes."""
    graph = community_graph()
    config = replace(ASKED, dtype="float64", inductive=inductive, features="standard")
    wanted, found = {}, {}
    for workers, kept in ((1, wanted), (3, found)):
        book, run, summary = trained(graph, workers, tmp_path, config)
        done = predicted(book, run, tmp_path / f"{workers}.npy", ("scores", "embedding"))
        kept.update(zip(done["what"], map(np.load, done["files"]), strict=True))
        right = (kept["scores"].argmax(1) == graph.y)[graph.test_mask[:, 0]]
        assert right.mean() == summary["test"]["score"]
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-6)


def test_embedding_enters_the_last_convolution(tmp_path):
    book, run, _ = trained(community_graph(), 2, tmp_path)
    predicted(book, run, tmp_path / "e.npy", ("embedding",))
    rows = torch.from_numpy(np.load(tmp_path / "e.npy"))
    whole = SavedRun.read(run)

    def work(transport):
        graph = Views.of(book, whole.config, Policy(Savings(cover=False)), transport).scored[-1].graph
        with torch.no_grad():
            return graph.nodes, whole.model(book).convs[-1](graph, rows[graph.nodes])

    nodes, logits = (torch.cat(pieces) for pieces in zip(*Hub(2).run(work), strict=True))
    assert torch.equal(logits[nodes.argsort()], reference(book, run))


@pytest.mark.parametrize("suffix", ["txt", "npy"])
def test_listed_nodes_in_the_order_of_the_list(tmp_path, suffix):
    book, run, _ = trained(community_graph(), 3, tmp_path)
    ids = np.random.default_rng(0).integers(120, size=50)  # some of them twice
    listed = tmp_path / f"ids.{suffix}"
    np.save(listed, ids.astype(np.int32)) if suffix == "npy" else np.savetxt(listed, ids, "%d")
    predicted(book, run, tmp_path / "all.npy", ("score",))
    assert predicted(book, run, tmp_path / "some.npy", ("score",), nodes=str(listed))["rows"] == 50
    assert np.array_equal(np.load(tmp_path / "some.npy"), np.load(tmp_path / "all.npy")[ids])


@pytest.mark.parametrize("suffix", ["npy", "parquet"])
@pytest.mark.parametrize("listed", [False, True])
def test_blocks_are_bounded(tmp_path, monkeypatch, suffix, listed):
    """With blocks of 7 rows: no block is longer, there are as many as it takes, and the file is the same."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install 'isthmus[parquet]'")
    book, run, _ = trained(community_graph(), 3, tmp_path)
    nodes = None
    if listed:
        nodes = str(tmp_path / "ids.npy")
        np.save(nodes, np.arange(119, -1, -1))
    out, whole = tmp_path / f"out.{suffix}", tmp_path / f"whole.{suffix}"
    predicted(book, run, whole, ("embedding",), nodes=nodes)
    lengths = []
    file = predictions.Arrays if suffix == "npy" else predictions.Table
    append = file.append
    monkeypatch.setattr(file, "append", lambda self, ids, block: (lengths.append(len(ids)), append(self, ids, block)))
    monkeypatch.setattr(predictions, "BLOCK_BYTES", 7 * 8 * 4)
    predicted(book, run, out, ("embedding",), nodes=nodes)
    assert lengths == [7] * 17 + [1]
    if suffix == "npy":
        assert out.read_bytes() == whole.read_bytes()
    else:
        assert parquet.ParquetFile(out).num_row_groups == 18
        assert parquet.read_table(out).equals(parquet.read_table(whole))


def test_parquet_joins_back(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install 'isthmus[parquet]'")
    graph = community_graph()
    book, run, summary = trained(graph, 2, tmp_path)
    predicted(book, run, tmp_path / "all.npy", ("class", "score", "embedding"))
    predicted(book, run, tmp_path / "all.parquet", ("class", "score", "scores", "embedding"))
    table = parquet.read_table(tmp_path / "all.parquet")
    assert table.column_names == ["node", "class", "score", "scores", "embedding"]
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    said, score = columns["class"].to_numpy(), columns["score"].to_numpy()
    assert np.array_equal(columns["node"].to_numpy(), np.arange(120))
    assert np.array_equal(said, np.load(tmp_path / "all.class.npy"))
    scores = np.load(tmp_path / "all.score.npy")
    assert np.array_equal(score, scores.max(1))
    assert np.array_equal(columns["scores"].flatten().to_numpy().reshape(-1, 4), scores)
    embedding = columns["embedding"].flatten().to_numpy().reshape(-1, 8)
    assert np.array_equal(embedding, np.load(tmp_path / "all.embedding.npy"))
    arrow = pytest.importorskip("pyarrow")
    truth = arrow.table({"node": np.arange(120), "truth": graph.y, "test": graph.test_mask[:, 0]})
    joined = truth.join(table.select(["node", "class"]), "node")
    right = joined["class"].to_numpy() == joined["truth"].to_numpy()
    assert right[joined["test"].to_numpy()].mean() == summary["test"]["score"]


def test_several_labels(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install 'isthmus[parquet]'")
    graph = community_graph(multilabel=True)
    book, run, summary = trained(graph, 2, tmp_path)
    predicted(book, run, tmp_path / "all.npy", ("class", "score"))
    said, score = np.load(tmp_path / "all.class.npy"), np.load(tmp_path / "all.score.npy")
    assert (said.dtype, said.shape) == (np.uint8, (120, 4))
    # The last bits of a sigmoid depend on where in a vector its number stands.
    np.testing.assert_array_max_ulp(score, torch.sigmoid(reference(book, run)).numpy(), maxulp=4)
    test = graph.test_mask[:, 0]
    true = (said[test] & graph.y[test]).sum()
    assert 2 * true / (said[test].sum() + graph.y[test].sum()) == pytest.approx(summary["test"]["score"])
    predicted(book, run, tmp_path / "all.parquet", ("class", "score"))
    table = parquet.read_table(tmp_path / "all.parquet")
    for name, values in (("class", said), ("score", score)):
        assert np.array_equal(np.array(table[name].to_pylist(), values.dtype), values)


def test_sparse_features(tmp_path):
    graph = community_graph()
    dense = np.where(graph.x > 0.3, graph.x, 0).astype(np.float32)
    book, run, _ = trained(replace(graph, x=sparse_rows(dense)), 2, tmp_path, replace(ASKED, features="rows"))
    predicted(book, run, tmp_path / "s.npy", ("score",))
    assert np.array_equal(np.load(tmp_path / "s.npy"), reference(book, run).softmax(1).numpy())


def test_bf16_rows(tmp_path):
    book, run, _ = trained(community_graph(), 2, tmp_path, replace(ASKED, rows_dtype="bf16"))
    predicted(book, run, tmp_path / "s.npy", ("score",))
    assert np.array_equal(np.load(tmp_path / "s.npy"), reference(book, run).softmax(1).numpy())


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(10, 4)

    def forward(self, graph, x):
        return self.last(graph.aggregate(x))


def test_a_model_of_ones_own(tmp_path):
    torch.manual_seed(0)
    graph = replace(community_graph(), x=community_graph().x.astype(np.float32))
    book, run, summary = trained(graph, 1, tmp_path, model=Own())
    with pytest.raises(InputError, match=r"another model \(.*Own\).*model="):
        predicted(book, run, tmp_path / "c.npy", ("class",))
    asked = PredictConfig(str(run), str(tmp_path / "c.npy"), ("class",))
    predict(book, asked, Hub(1).transport(0), model=Own())
    right = (np.load(tmp_path / "c.npy") == graph.y)[graph.test_mask[:, 0]]
    assert right.mean() == summary["test"]["score"]
    with pytest.raises(InputError, match="do not fit"):
        predict(book, replace(asked, overwrite=True), Hub(1).transport(0), model=nn.Linear(3, 3))
    asked = replace(asked, what=("embedding",), overwrite=True)
    with pytest.raises(InputError, match="leave embedding out"):
        predict(book, asked, Hub(1).transport(0), model=Own())
