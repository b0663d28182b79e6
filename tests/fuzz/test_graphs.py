"""Graphs as people might give them: arrays, text and PyG objects of every odd kind."""

from __future__ import annotations

import gzip
import io
import zipfile

import numpy as np
import pytest
import torch
from fuzz.harness import arrays, bounds, cases, scratch, spoil_bytes, spoil_file, survives  # noqa: F401
from graph.small import PAIRS, fields
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.graph import from_pyg, load
from isthmus.partition import partition

WAYS = st.sampled_from([{}, {"undirected": True}, {"directed": True}])
SPARSE = {"x_indptr": np.arange(7), "x_indices": np.arange(6), "x_data": np.ones(6, np.float32), "x_shape": [6, 9]}
KEYS = [*fields(), "edge_attr", "node_type", "num_nodes", "num_classes", *SPARSE]
NAMED = [  # what people and attackers really gave
    {**SPARSE, "x_shape": np.array([6, np.nan])}, {**SPARSE, "x_data": np.float32(1)},
    {**SPARSE, "x_indptr": np.int64(0)},
    {**SPARSE, "x_shape": np.array([6, 2**40])}, {"num_classes": np.int64(2**31 - 1)}, {"y": np.zeros((6, 0))},
    {"y": np.array([0, 1, np.inf, 0, 0, 0])}, {"y": np.array([0, 1, 1e30, 0, 0, 0])},
    {"more": np.zeros(5 << 20, np.uint8)},
    {"y": np.array([1, 2, 3, 4, 5, -1])}, {"edge_attr": np.ones((12, 0))}, {"x": np.zeros((6, 0), np.float32)},
]  # fmt: skip
ODD_COUNTS = [-1, 0, 1, 3, 6, 7, 2**16, 2**31 - 1, 2**40, 2**63 - 1]


def npy(draw, array: np.ndarray) -> bytes:
    """An .npy file, now and then with a header that claims something else."""
    file = io.BytesIO()
    np.save(file, array)
    content = file.getvalue()
    if not draw(st.integers(0, 7)):
        shape = draw(
            st.sampled_from(["(True,)", "(-6,)", "(10000000000000,)", "(6, 99999999)", "(6.0,)", "((6,),)", "6"])
        )
        content = content.replace(str(array.shape).encode().ljust(20), shape.encode().ljust(20), 1)
    return content


def zipped(draw, given_arrays: dict[str, np.ndarray]) -> bytes:
    """A zip of them, by any method that zips know."""
    file, method = io.BytesIO(), draw(st.sampled_from([0, 0, 8, 8, 12, 14]))
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, array in given_arrays.items():
            archive.writestr(f"{name}.npy", npy(draw, array))
    content = bytearray(file.getvalue())
    if not draw(st.integers(0, 5)):  # versions, flags, methods and sizes that a member claims
        at = content.find(b"PK\x01\x02") + draw(st.sampled_from([4, 6, 8, 10, 20, 24, 28, 42]))
        content[at : at + 2] = draw(st.sampled_from([b"\xff\xff", b"\x01\x00", b"\x63\x00", b"\x00\x00"]))
    return bytes(content)


@cases("npz")
@given(st.data())
def test_npz(data):
    draw = data.draw
    content = fields()
    if not draw(st.integers(0, 3)):
        content = {**fields(x=None), **SPARSE}
    elif not draw(st.integers(0, 3)):
        named = draw(st.sampled_from(NAMED))
        content = {**fields(x=None if "x_shape" in named else fields()["x"]), **named}
    for name in draw(st.lists(st.sampled_from(KEYS), max_size=3, unique=True)):
        how = draw(st.sampled_from(["any", "any", "gone", "cast", "count"]))
        if how == "gone":
            content.pop(name, None)
        elif how == "cast" and name in content:
            with np.errstate(all="ignore"):
                content[name] = np.asarray(content[name]).astype(
                    draw(st.sampled_from(["f2", "f4", "f8", "u8", "i1", "?", ">i8", "c8", "U4"]))
                )
        elif how == "count":
            content[name] = np.int64(draw(st.sampled_from(ODD_COUNTS)))
        else:
            content[name] = draw(arrays())
    blob = zipped(draw, {name: np.asarray(array) for name, array in content.items()})
    if not draw(st.integers(0, 3)):
        blob = spoil_bytes(draw, blob)
    with scratch() as folder, survives():
        (folder / "a.npz").write_bytes(blob)
        graph = load(folder / "a.npz", **draw(WAYS))
        if not draw(st.integers(0, 9)):  # what is accepted can be trained on
            book = partition(graph, 2, "random", out=folder / "parts", order="given")
            train(book, TrainConfig(steps=1), Hub(1).transport(0))


EDGES = [["src", "dst"], *([str(a), str(b)] for a, b in PAIRS + [(b, a) for a, b in PAIRS])]
NODES = [["id", "label", "split", "f0", "f1"]] + [
    [str(k), label, split, str(k), "1.5"]
    for k, (label, split) in enumerate(
        [("0", "train"), ("1", "train"), ("2", "val"), ("0", "test"), ("1", ""), ("", "")]
    )
]
TOKENS = [
    "", "nan", "inf", "-inf", "1e400", "-1", "1.0", "2.", "0x10", "1_000", "٣", " 1 ", "true", "no", "train", "id",
    "99999999999999999999", "-99999999999999999999", '"', '""', 'a"b', '"a,b"', "a\nb", "\r", "\0", "é", "x" * 300,
    "label_0", "Unnamed: 0", "#", "1e30", "0.1.2", "+1", "--1", "None", "y" * 140_000, "2147483647", "4294967296",
]  # fmt: skip


def spoil_rows(draw, rows: list[list[str]]) -> str:
    rows = [list(row) for row in rows]
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 1, 2, 3]))):
        row = draw(st.integers(0, len(rows) - 1))
        row = row or draw(st.integers(0, len(rows) - 1))  # the head not too often
        how = draw(st.sampled_from(["cell", "cell", "cell", "column", "short", "long", "gone", "twice"]))
        token = draw(st.one_of(st.sampled_from(TOKENS), st.text(max_size=4)))
        if how == "column" and rows[0]:
            place = draw(st.integers(0, len(rows[0]) - 1))
            rows = [[*line[:place], token, *line[place + 1 :]] for line in rows]
        elif how == "cell" and rows[row]:
            rows[row][draw(st.integers(0, len(rows[row]) - 1))] = token
        elif how == "short":
            rows[row] = rows[row][:-1]
        elif how == "long":
            rows[row] = [*rows[row], token]
        elif how == "gone" and len(rows) > 1:
            del rows[row]
        else:
            rows.insert(row, list(rows[row]))
    return "\n".join(",".join(row) for row in rows) + draw(st.sampled_from(["", "\n", "\n\n\n", "\r\n"]))


@cases("tables")
@given(st.data())
def test_tables(data):
    draw = data.draw
    with scratch() as folder, survives():
        for stem, rows in (("edges", EDGES), ("nodes", NODES)):
            text = "\n".join(map(",".join, rows)) if draw(st.booleans()) else spoil_rows(draw, rows)
            text = text.encode("utf-8", "surrogatepass")
            if draw(st.booleans()):
                text = (
                    text
                    if draw(st.integers(0, 7))
                    else text + draw(st.sampled_from([b"0,0\n", b"\0", b"1"])) * 5_000_000
                )
                path, text = folder / f"{stem}.csv.gz", gzip.compress(text, 1, mtime=0)
            else:
                path = folder / f"{stem}.csv"
            path.write_bytes(text if draw(st.integers(0, 7)) else spoil_bytes(draw, text))
            if not draw(st.integers(0, 15)):
                spoil_file(draw, path)
        load(folder, **draw(WAYS))


def tensors(draw) -> object:
    """A tensor of any kind, or what could become one."""
    array = draw(arrays())
    known = array.dtype.str[1:] in ("i4", "i8", "f4", "f8", "u1", "b1", "c8") and array.dtype.isnative
    return draw(st.sampled_from([array, torch.from_numpy(array.copy()) if known else array.tolist()]))


ODD = [
    lambda like: None, lambda like: 3, lambda like: "text", lambda like: [1, 2], lambda like: [[1], [1, 2]],
    lambda like: {"a": 1}, lambda like: {1, 2}, lambda like: object(), lambda like: float("nan"),
    lambda like: np.array([{}]), lambda like: [None] * 6, lambda like: [10**30] * 6, lambda like: like.tolist(),
    lambda like: like.to_sparse(), lambda like: torch.eye(6).to_sparse_csr(), lambda like: torch.eye(6).to_sparse_csc(),
    lambda like: torch.eye(6).to_sparse_bsr((2, 2)), lambda like: torch.ones(6, 2, 2).to_sparse(1),
    lambda like: torch.ones(6, 2, 2).to_sparse(), lambda like: torch.ones(6).to_sparse(),
    lambda like: torch.ones(6, 2, device="meta"), lambda like: torch.ones(6, 2, requires_grad=True),
    lambda like: torch.ones(6, 2).bfloat16(), lambda like: torch.ones(6, 2, dtype=torch.complex64).conj(),
    lambda like: torch.quantize_per_tensor(torch.ones(6, 2), 0.1, 0, torch.qint8),
    lambda like: torch.nested.nested_tensor([torch.ones(2)]), lambda like: torch.full((6,), 2**62),
    lambda like: torch.full((6,), float("inf")), lambda like: like[:0], lambda like: like.double(),
    lambda like: torch.zeros(1, 2).expand(10**12, 2), lambda like: torch.empty(2**40, dtype=torch.int8, device="meta"),
    lambda like: like.t() if like.ndim == 2 else like[:, None], lambda like: torch.zeros(6, 0),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # of torch, about the tensors that are made here
@cases("data")
@given(st.data())
def test_pyg_data(data):
    draw = data.draw
    content = {name: torch.from_numpy(np.asarray(array)) for name, array in fields().items()}
    whole = content["x"]
    known = st.sampled_from([*content, "edge_attr", "edge_weight", "node_type", "edge_type"])
    for name in draw(st.lists(known, max_size=draw(st.sampled_from([1, 1, 2, 3])), unique=True)):
        content[name] = draw(st.sampled_from(ODD))(content.get(name, whole)) if draw(st.booleans()) else tensors(draw)
    made = Data()
    for name, value in content.items():
        made[name] = value
    with survives():
        from_pyg(made, **draw(WAYS))
