"""Predictions of a graph from tables carry the tables' own ids, whoever owns the node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graphs import tables
from runs import ASKED, predicted

from isthmus.comm import Hub
from isthmus.engine import PredictConfig, predict, predictions, train
from isthmus.errors import InputError
from isthmus.graph import load
from isthmus.partition import partition
from isthmus.partition.assemble import assemble

WORDS = [f"node-{k * 7919 % 120}" for k in range(120)]
NUMBERS = [k * 7919 % 100_003 - 40_000 for k in range(120)]


def trained(folder, ids, workers=2):
    """Three parts on two workers: one of them joins two."""
    book = partition(load(tables(folder / "mine", ids)), 3, "random", out=folder / "parts")
    run = folder / "run"
    Hub(workers).run(lambda transport: train(book, ASKED, transport, out=run))
    return book, run


def written(book, run, out, what=("class",), workers=2, **options):
    asked = PredictConfig(str(run), str(out), what, **options)
    return Hub(workers).run(lambda transport: predict(book, asked, transport))[0]


@pytest.mark.parametrize("ids", [WORDS, NUMBERS], ids=["words", "numbers"])
def test_arrays_have_ids_beside_them(tmp_path, ids):
    book, run = trained(tmp_path, ids)
    assert assemble(book).ids.tolist() == ids
    done = written(book, run, tmp_path / "all.npy", ("class", "score"))
    assert [file.rsplit("/", 1)[1] for file in done["files"]] == ["all.id.npy", "all.class.npy", "all.score.npy"]
    assert np.load(done["files"][0]).tolist() == ids
    assert predicted(book, run, tmp_path / "three.npy", ("class",))["rows"] == 120
    assert np.load(tmp_path / "three.id.npy").tolist() == ids
    assert np.array_equal(np.load(tmp_path / "three.npy"), np.load(done["files"][1]))


@pytest.mark.parametrize("ids", [WORDS, NUMBERS], ids=["words", "numbers"])
def test_parquet_joins_back_by_id(tmp_path, ids, monkeypatch):
    """In blocks of a few rows, too."""
    arrow = pytest.importorskip("pyarrow", reason="pip install 'isthmus[parquet]'")
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(predictions, "BLOCK_BYTES", 300)
    book, run = trained(tmp_path, ids)
    written(book, run, tmp_path / "all.npy")
    written(book, run, tmp_path / "all.parquet", ("class", "score"))
    table = parquet.read_table(tmp_path / "all.parquet")
    assert table.column_names == ["node", "id", "class", "score"]
    order = np.random.default_rng(1).permutation(120)
    mine = arrow.table({"id": [ids[k] for k in order], "row": order})
    joined = mine.join(table, "id").sort_by("row")
    assert joined["class"].to_pylist() == np.load(tmp_path / "all.npy").tolist()


@pytest.mark.parametrize(
    ("ids", "suffix"), [(WORDS, "txt"), (WORDS, "npy"), (NUMBERS, "txt"), (NUMBERS, "npy")], ids=str
)
def test_a_list_names_nodes_by_their_ids(tmp_path, ids, suffix):
    book, run = trained(tmp_path, ids)
    rows = [7, 119, 0, 7]
    asked = [ids[k] for k in rows]
    listed = tmp_path / f"list.{suffix}"
    np.save(listed, asked) if suffix == "npy" else listed.write_text("\n".join(map(str, asked)))
    written(book, run, tmp_path / "all.npy")
    written(book, run, tmp_path / "some.npy", nodes=str(listed))
    assert np.load(tmp_path / "some.id.npy").tolist() == asked
    assert np.load(tmp_path / "some.npy").tolist() == np.load(tmp_path / "all.npy")[rows].tolist()


def test_what_is_no_id(tmp_path):
    book, run = trained(tmp_path, WORDS)
    listed = tmp_path / "list.txt"
    listed.write_text("node-5\nnode-500\n")
    with pytest.raises(InputError, match=r"number 2 of the list is node-500, which is not an id of mine: correct it"):
        written(book, run, tmp_path / "c.npy", nodes=str(listed))
    np.save(tmp_path / "list.npy", np.zeros(3))
    with pytest.raises(InputError, match=r"holds float64 of shape .*: give a list of ids"):
        written(book, run, tmp_path / "c.npy", nodes=str(tmp_path / "list.npy"))
    (tmp_path / "c.id.npy").touch()
    with pytest.raises(InputError, match=r"c.id.npy exists already.*--overwrite"):
        written(book, run, tmp_path / "c.npy")


def test_ids_are_part_of_the_parts(tmp_path):
    """Other ids are other parts: a run keeps to those that it was trained on."""
    graph = load(tables(tmp_path / "mine", WORDS))
    one, other = (
        partition(replace(graph, ids=np.array(ids)), 2, "random", out=tmp_path / name)
        for name, ids in (("a", WORDS), ("b", WORDS[::-1]))
    )
    assert one.fingerprint != other.fingerprint
