"""What cannot be predicted: each refusal is one line, and leaves nothing behind."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
from graphs import community_graph, cut
from runs import ASKED, SHAPE, predicted, trained

from isthmus.comm import Hub
from isthmus.engine import PredictConfig, predict, predictions
from isthmus.engine.saved_run import SavedRun
from isthmus.errors import InputError


def test_what_a_run_must_have(tmp_path):
    book, run, _ = trained(community_graph(), 1, tmp_path)

    def copied(name):
        return shutil.copytree(run, tmp_path / name)

    out = tmp_path / "c.npy"
    with pytest.raises(InputError, match="holds no run"):
        predicted(book, tmp_path, out, ("class",))
    bare = copied("bare")
    shutil.rmtree(bare / "checkpoints")
    with pytest.raises(InputError, match="has no checkpoint"):
        predicted(book, bare, out, ("class",))
    early = copied("early")
    for step in ("step-6", "step-8"):
        shutil.rmtree(early / "checkpoints" / step)
    with pytest.raises(InputError, match="before its first evaluation"):
        predicted(book, early, out, ("class",))
    damaged = copied("damaged")
    (damaged / "checkpoints/step-8/best.safetensors").write_bytes(b"\0" * 9)
    with pytest.raises(InputError, match="step-8 is damaged"):
        predicted(book, damaged, out, ("class",))
    (damaged / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"config.json is damaged"):
        predicted(book, damaged, out, ("class",))
    changed = copied("changed")
    config = json.loads((changed / "config.json").read_text())
    config["model"]["hidden"] = 16
    (changed / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="do not fit"):
        predicted(book, changed, out, ("class",))
    assert not out.exists()


def test_the_parts_of_a_run(tmp_path):
    book, run, _ = trained(community_graph(), 2, tmp_path)
    assert SavedRun.read(run).book().folder == book.folder
    other = cut(community_graph(seed=9), 2, "random", tmp_path / "other")
    with pytest.raises(InputError, match="other parts than"):
        SavedRun.read(run).book(other.folder)
    with pytest.raises(InputError, match="other parts than"):
        predicted(other, run, tmp_path / "c.npy", ("class",))
    with pytest.raises(InputError, match="is not a parts folder"):
        SavedRun.read(run).book(tmp_path)
    book.folder.rename(tmp_path / "moved")
    with pytest.raises(InputError, match=r"no longer at .*--parts DIR"):
        SavedRun.read(run).book()
    assert SavedRun.read(run).book(tmp_path / "moved").folder == tmp_path / "moved"
    (tmp_path / "moved").rename(run / "parts")
    assert SavedRun.read(run).book().folder == run / "parts"
    book, asked = SavedRun.read(run).book(), PredictConfig(str(run), str(tmp_path / "c.npy"))
    with pytest.raises(InputError, match="has 2 parts but 3 workers: use --workers 2 or fewer"):
        Hub(3).run(lambda transport: predict(book, asked, transport))


def test_what_can_be_asked(tmp_path, monkeypatch):
    book, run, _ = trained(community_graph(), 1, tmp_path, replace(ASKED, model=replace(SHAPE, layers=1)))
    with pytest.raises(InputError, match=r"let --out end in \.npy, \.parquet or \.csv"):
        PredictConfig("run", "out.txt")
    with pytest.raises(InputError, match=r"cannot predict colour of a node: .* class, score, scores, embedding"):
        PredictConfig("run", "out.npy", ("class", "colour"))
    with pytest.raises(InputError, match="reads the features: leave embedding out"):
        predicted(book, run, tmp_path / "e.npy", ("embedding",))
    (tmp_path / "there.score.npy").touch()
    with pytest.raises(InputError, match=r"there.score.npy exists already.*--overwrite"):
        predicted(book, run, tmp_path / "there.npy", ("class", "score"))
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        predicted(book, run, tmp_path / "folder.npy", ("class",), overwrite=True)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot write"):
        predicted(book, run, tmp_path / "file/c.npy", ("class",))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"isthmus\[parquet\]"):
        predicted(book, run, tmp_path / "c.parquet", ("class",))


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("3\n500\n", "number 2 of the list is 500, but the nodes are 0 to 119"),
        ("-1\n", "is -1"),
        ("3\nfour\n", "line 2"),
        ("3,4\n", "one id per line"),
        ("", "names no node"),
        (np.zeros(3), "holds float64"),
        (np.zeros((2, 2), int), r"shape \[2, 2\]"),
        (None, "cannot be read"),
    ],
)
def test_wrong_lists_of_nodes(tmp_path, content, word):
    book, run, _ = trained(community_graph(), 1, tmp_path)
    listed = tmp_path / "ids.txt"
    if isinstance(content, str):
        listed.write_text(content)
    elif content is not None:
        listed = tmp_path / "ids.npy"
        np.save(listed, content)
    with pytest.raises(InputError, match=word):
        predicted(book, run, tmp_path / "c.npy", ("class",), nodes=str(listed))
    assert not (tmp_path / "c.npy").exists()


def test_nothing_half_written(tmp_path, monkeypatch):
    """A full disk leaves what was there before, and no litter."""
    book, run, _ = trained(community_graph(), 2, tmp_path)
    out = tmp_path / "out" / "c.npy"
    predicted(book, run, out, ("class",))
    before = out.read_bytes()
    (out.parent / ".c.npy.unfinished-of-a-killed-process").mkdir()

    def full(self, ids, block):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(predictions.Arrays, "append", full)
    with pytest.raises(InputError, match=r"cannot write .*No space left"):
        predicted(book, run, out, ("class",), overwrite=True)
    assert [path.name for path in out.parent.iterdir()] == ["c.npy"]
    assert out.read_bytes() == before
