"""Predictions as CSV hold the same numbers as the arrays, to the last digit."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pytest
from graphs import community_graph, tables
from runs import ASKED, predicted, trained

from isthmus.comm import Hub
from isthmus.engine import predictions, train
from isthmus.graph import load
from isthmus.partition import partition

ALL = ("class", "score", "scores", "embedding")


def read(path) -> dict[str, list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    return dict(zip(head, zip(*rows, strict=True), strict=True))


@pytest.mark.parametrize("multilabel", [False, True])
def test_the_numbers_of_the_arrays(tmp_path, monkeypatch, multilabel):
    """In blocks of a few rows, too."""
    monkeypatch.setattr(predictions, "BLOCK_BYTES", 700)
    book, run, _ = trained(community_graph(multilabel=multilabel), 2, tmp_path)
    assert predicted(book, run, tmp_path / "a.csv", ALL)["files"] == [str(tmp_path / "a.csv")]
    predicted(book, run, tmp_path / "a.npy", ALL)
    said = read(tmp_path / "a.csv")
    arrays = {name: np.load(tmp_path / f"a.{name}.npy") for name in ALL}
    assert said.pop("node") == tuple(map(str, range(120)))
    if not multilabel:
        assert np.array_equal(np.array(said.pop("class"), int), arrays.pop("class"))
        assert np.array_equal(np.array(said.pop("score"), np.float32), arrays.pop("score").max(1))
    for name, values in arrays.items():
        for k in range(values.shape[1]):
            assert np.array_equal(np.array(said.pop(f"{name}_{k}"), np.float32), values[:, k])
    assert not said


def test_ids_are_quoted_where_they_must_be(tmp_path):
    ids = [f'node "{k}", näher' for k in range(120)]
    source = tables(tmp_path / "mine", [f"n{k}" for k in range(120)])
    book = partition(replace(load(source), ids=np.array(ids)), 2, "random", out=tmp_path / "parts")
    Hub(2).run(lambda transport: train(book, ASKED, transport, out=tmp_path / "run"))
    predicted(book, tmp_path / "run", tmp_path / "a.csv", ("class",))
    said = read(tmp_path / "a.csv")
    assert list(said) == ["node", "id", "class"]
    assert list(said["id"]) == ids
