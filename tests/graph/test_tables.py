"""Folders of CSV or Parquet files."""

from __future__ import annotations

import gzip
import os

import numpy as np
import pytest
from graph.small import PAIRS, RING, fields, neighbours

from isthmus.errors import InputError
from isthmus.graph import load, text
from isthmus.graph.folder import save_graph

EDGES = "src,dst\n" + "".join(f"{a},{b}\n{b},{a}\n" for a, b in PAIRS)
NODES = "id,label,split,f0,f1\n0,0,train,0,1\n1,1,train,2,3\n2,2,val,4,5\n3,0,test,6,7\n4,1,test,8,9\n5,,,10,11\n"


@pytest.fixture
def folder(tmp_path):
    def write(edges=EDGES, nodes=NODES):
        (tmp_path / "edges.csv").write_text(edges)
        (tmp_path / "nodes.csv").write_text(nodes)
        return tmp_path

    return write


def check_ring(graph):
    want = fields()
    assert neighbours(graph) == RING
    assert np.array_equal(graph.x, want["x"])
    assert graph.y.tolist() == want["y"].tolist()
    for name in ("train_mask", "val_mask", "test_mask"):
        assert getattr(graph, name)[:, 0].tolist() == want[name].tolist()


@pytest.mark.parametrize("lines", [2, 1 << 17])
def test_csv(folder, monkeypatch, lines):
    monkeypatch.setattr(text, "LINES", lines)
    check_ring(load(folder()))


def test_gzipped_csv_and_a_byte_order_mark(folder, tmp_path):
    root = folder()
    (root / "edges.csv.gz").write_bytes(gzip.compress(EDGES.encode()))
    (root / "edges.csv").unlink()
    (root / "nodes.csv").write_text(NODES, encoding="utf-8-sig")
    check_ring(load(root))


def test_nodes_without_id_are_named_by_row(folder):
    graph = load(folder(nodes="\n".join(line.split(",", 1)[1] for line in NODES.splitlines())))
    check_ring(graph)
    assert graph.ids is None


@pytest.mark.parametrize("names", [[70, -3, 5, 900, 12, 4], ["ada", "bob", "cy", "dee", "eve", "42"]])
def test_ids_of_any_kind_keep_the_order_of_the_nodes_file(folder, names):
    edges = "src,dst\n" + "".join(f"{names[a]},{names[b]}\n{names[b]},{names[a]}\n" for a, b in PAIRS)
    head, *rows = NODES.splitlines()
    nodes = "\n".join([head, *(f"{name}{row[1:]}" for name, row in zip(names, rows, strict=True))])
    graph = load(folder(edges, nodes))
    check_ring(graph)
    assert graph.ids.tolist() == names
    assert load(save_graph(graph, folder() / "kept")).ids.tolist() == names


def test_boolean_splits_label_sets_and_edge_attributes(folder):
    edges = "src,dst,weight\n" + "".join(f"{a},{b},{a}{b}.5\n{b},{a},{b}{a}.5\n" for a, b in PAIRS)
    rows = ("1,0,true,0,0,1", "1,1,0,1,0,2", "0,0,0,0,1,3", "0,0,0,0,1,4", "1,0,,,,5", "1,1,0,0,0,6")
    nodes = "\n".join(("label_0,label_1,train,val,test,f0", *rows))
    graph = load(folder(edges, nodes))
    assert graph.multilabel
    assert graph.y[1].tolist() == [1, 1]
    assert graph.test_mask[:, 0].tolist() == [False, False, True, True, False, False]
    target = np.repeat(np.arange(6), np.diff(graph.indptr))
    assert graph.edge_attr.tolist() == (10 * graph.indices + target + 0.5).tolist()


def test_ids_with_leading_zeros_are_words_where_others_are(folder):
    """Each column alone looks like numbers or not; together they name the same nodes."""
    nodes = "id,label,split,f\n1,0,train,1\n01,1,val,2\nA,0,test,3\n"
    graph = load(folder("src,dst\n01,A\nA,01\n", nodes))
    assert neighbours(graph) == [[], [2], [1]]
    with pytest.raises(InputError, match=r"src 007 is not an id of nodes.csv"):
        load(folder("src,dst\n007,A\nA,007\n", nodes))


def test_whole_numbers_stay_what_they_are(folder):
    """Seconds since 1970 do not fit into float32; classes may be written as 1.0, as they are where some are missing."""
    nodes = NODES.replace("1,1,train", "1,1.0,train").replace("4,1,test", "4,1.,test")
    edges = "src,dst,time\n" + "".join(f"{a},{b},17000000{a}{b}\n{b},{a},17000000{a}{b}\n" for a, b in PAIRS)
    graph = load(folder(edges, nodes))
    assert graph.y.tolist() == fields()["y"].tolist()
    assert graph.edge_attr.dtype == np.float64
    assert sorted(set(graph.edge_attr.tolist())) == sorted(float(f"17000000{a}{b}") for a, b in PAIRS)


BAD = [
    (EDGES, NODES.replace("label", "label,label_0").replace("0,train", "0,1,train"), "is the column label a feature"),
    (EDGES, NODES.replace("id,", "ID,"), "is the column ID a feature. rename it to id"),
    (EDGES, NODES.replace("f0", "train"), "is the column train a feature. rename or drop it"),
    (EDGES, NODES.replace("f0", ""), "a column without a name, as pandas writes an index"),
    (
        EDGES.replace("src,dst", "src,dst,Unnamed: 0").replace("\n", ",0\n")[:-3],
        NODES,
        "edges.csv has a column without",
    ),
    (EDGES, NODES.replace("2,2,val", "2,--1,val"), "label '--1' is not a class number"),
    (EDGES, NODES.replace("2,2,val", f"2,{10**30},val"), "000' is not a class number"),
    (EDGES, NODES.replace("0,0,train", '"0\n",0,train'), "write every row in one line|cells"),
    (EDGES, NODES.replace("4,5", "4,tall"), r"nodes.csv line 4, column 'f1': 'tall' is not a number"),
    (EDGES, NODES.replace("4,5", "4,"), r"nodes.csv line 4, column 'f1': '' is not a number"),
    (EDGES, NODES.replace("4,5", "4"), r"nodes.csv line 4 has 4 cells instead of 5"),
    (EDGES, NODES.replace("4,5", "nan,5"), "nan in row 2, column 0"),
    (EDGES, NODES.replace("2,2,val", "2,two,val"), "row 3: label 'two' is not a class number"),
    (EDGES, NODES.replace("val", "dev"), "row 3: split 'dev' is unknown"),
    (EDGES, NODES.replace("split", "part"), "says nothing about splits"),
    (EDGES, NODES.replace("label", "class"), "no column label .there is: id, class"),
    (EDGES, NODES.replace("5,,", "4,,"), "id 4 is in two rows"),
    (EDGES.replace("src", "from"), NODES, "no column src"),
    (EDGES + "9,0\n", NODES, r"row 13: src 9 is not an id of nodes.csv"),
    (EDGES + "x,0\n", NODES, r"row 13: src x is not an id of nodes.csv"),
    (EDGES, "id,label,split\n0,0,train\n", "no feature column"),
    (EDGES + "0,3\n", NODES, "1 edges have no reverse"),
    (
        EDGES + "x,0\n",
        NODES.replace("id,label", "f9,label"),
        "edges.csv line 14, column 'src': 'x' is not a whole number",
    ),
]


@pytest.mark.parametrize(("edges", "nodes", "message"), BAD, ids=[case[2] for case in BAD])
def test_bad_tables(folder, edges, nodes, message):
    with pytest.raises(InputError, match=message):
        load(folder(edges, nodes))


def test_truncated_gzip(folder):
    root = folder()
    (root / "edges.csv").unlink()
    (root / "edges.csv.gz").write_bytes(gzip.compress(EDGES.encode())[:-12])
    with pytest.raises(InputError, match="truncated or damaged"):
        load(root)


@pytest.fixture
def parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")

    def write(rows=None, **more):
        want = fields()
        src, dst = want["edge_index"]
        pq.write_table(pa.table({"src": pa.array(src, pa.int32()), "dst": dst}), tmp_path / "edges.parquet")
        nodes = {"id": pa.array(range(6)), "label": pa.array([0, 1, 2, 0, 1, None])}
        nodes["split"] = pa.array(["train", "train", "val", "test", "test", None])
        nodes["x"] = pa.array(want["x"].tolist(), pa.list_(pa.float32(), 2)) if rows is None else rows
        pq.write_table(pa.table(nodes | more), tmp_path / "nodes.parquet")
        return tmp_path

    return write


def test_parquet_with_a_fixed_size_list(parquet):
    check_ring(load(parquet()))


def test_parquet_with_lists_and_plain_columns(parquet):
    pa = pytest.importorskip("pyarrow")
    graph = load(parquet(rows=pa.array(fields()["x"].tolist()), age=pa.array(range(6))))
    assert graph.x[:, :2].tolist() == fields()["x"].tolist()
    assert graph.x[:, 2].tolist() == list(range(6))


def test_bad_parquet(parquet):
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(InputError, match="lists of different lengths"):
        load(parquet(rows=pa.array([[1.0]] * 5 + [[1.0, 2.0]])))
    with pytest.raises(InputError, match="column 'word' holds string, not numbers"):
        load(parquet(word=pa.array(["a"] * 6)))
    with pytest.raises(InputError, match="column 'x' has empty cells"):
        load(parquet(rows=pa.array([1.0, None, 1, 1, 1, 1])))
    root = parquet()
    (root / "nodes.parquet").write_bytes((root / "nodes.parquet").read_bytes()[:-9])
    with pytest.raises(InputError, match="not a whole Parquet file"):
        load(root)


@pytest.mark.parametrize("letter", ["\U0002d02a", "\U000d0e1c", "٣", "é"])
def test_letters_where_numbers_belong(folder, letter):
    """Some of them made numpy's reader of whole numbers crash."""
    with pytest.raises(InputError, match=r"nodes\.csv"):
        load(folder(nodes=NODES.replace("10,11", f"10,{letter}")))
    with pytest.raises(InputError, match=r"edges\.csv row 1: src"):
        load(folder(edges=EDGES.replace("0,1", f"{letter},1", 1)))


def test_a_bomb_is_not_unpacked(folder, monkeypatch):
    root = folder()
    (root / "edges.csv").unlink()
    lines = b"src,dst\n" + b"0,1\n" * 1_000_000
    (root / "edges.csv.gz").write_bytes(gzip.compress(lines))
    monkeypatch.setenv("ISTHMUS_MAX_UNPACKED", "1MiB")
    with pytest.raises(
        InputError, match=r"edges\.csv\.gz has .* unpacks to more than 1,048,576: .*ISTHMUS_MAX_UNPACKED"
    ):
        load(root)


def test_words_whose_array_would_fill_the_memory(folder, monkeypatch):
    monkeypatch.setenv("ISTHMUS_MAX_UNPACKED", "1MiB")
    long = "n" * 100_000
    with pytest.raises(InputError, match=r"nodes\.csv has .* unpacks to more than"):
        load(folder(nodes=NODES.replace("train", long, 1)))


@pytest.mark.parametrize("name", ["nodes.csv", "edges.csv"])
def test_a_pipe_is_not_waited_for(folder, name):
    root = folder()
    (root / name).unlink()
    os.mkfifo(root / name)
    with pytest.raises(InputError, match="is not an ordinary file"):
        load(root)


@pytest.mark.parametrize("head", ["id,label,split,f0", "label,split,f0"])
def test_a_table_without_a_row(folder, head):
    with pytest.raises(InputError, match=r"nodes\.csv has no row below its first line"):
        load(folder(nodes=head))
    with pytest.raises(InputError, match="no edge"):
        load(folder(edges="src,dst\n"))
