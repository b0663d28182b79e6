"""Read a folder with ``edges`` and ``nodes`` as Parquet or CSV files.

Node k is the k-th row of the nodes file; ids may be any distinct integers or words, and edges name nodes by them. The
graph keeps them, so that predictions can be joined back.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isthmus.errors import InputError
from isthmus.files import check_unpacked, open_regular
from isthmus.graph import check
from isthmus.graph.raw import RawGraph
from isthmus.graph.text import read_header, read_matrix, read_words

SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test", "": "", "none": ""}
MASKS = ("train", "val", "test")
CLASS = re.compile(r"[+-]?[0-9]{1,18}(\.0*)?")  # some tools write 1.0 when other labels are missing
VALUE = re.compile(r"[+-]?([0-9]{1,18}(\.[0-9]{0,30})?|\.[0-9]{1,30})(e[+-]?[0-9]{1,2})?", re.IGNORECASE)
UNNAMED = re.compile(r"|Unnamed: \d+|__index_level_\d+__")
TRUTH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}


@dataclass(frozen=True)
class Table:
    """A file of named columns, independent of its format."""

    path: Path
    names: list[str]
    numbers: Callable[[list[str], type], np.ndarray]  # columns → [rows, columns], lists spread out; integers as floats
    keys: Callable[[str, bool], np.ndarray]  # column of ids → integers, or text if it holds words and they are allowed
    words: Callable[[str], np.ndarray]  # column → text, "" where empty

    def require(self, *names: str) -> None:
        missing = [name for name in names if name not in self.names]
        if missing:
            there = ", ".join(self.names)
            raise InputError(f"{self.path} has no column {', '.join(missing)} (there is: {there}): add or rename it")

    def others(self, known: set[str], reserved: set[str]) -> list[str]:
        """Return the columns that are not known; refuse those that were hardly meant as features."""
        for name in (names := [name for name in self.names if name not in known]):
            if UNNAMED.fullmatch(name):
                raise InputError(f"{self.path} has a column without a name, as pandas writes an index: drop it")
            if name.lower() in reserved:
                remedy = "rename or drop it" if name in reserved else f"rename it to {name.lower()}, or drop it"
                raise InputError(f"{self.path}: is the column {name} a feature? {remedy}")
        return names


def read_tables(folder: Path) -> RawGraph:
    """Read a graph from its two tables.

    edges: ``src, dst``; other columns are edge attributes. nodes: ``id`` (optional); ``label`` or ``label_0 …``;
    ``split`` or ``train, val, test``; every other column is a feature.
    """
    nodes, edges = open_table(folder, "nodes"), open_table(folder, "edges")
    edges.require("src", "dst")
    label_sets = [name for name in nodes.names if re.fullmatch(r"label_\d+", name)]
    if not label_sets:
        nodes.require("label")
    by_word = "split" in nodes.names
    if not by_word and not set(MASKS) <= set(nodes.names):
        raise InputError(f"{nodes.path} says nothing about splits: add a column split with train, val, test or nothing")
    known = {"id", *(label_sets or ["label"]), *(["split"] if by_word else MASKS)}
    features = nodes.others(known, {"id", "label", "split", *MASKS})
    if not features:
        raise InputError(f"{nodes.path} has no feature column: add at least one column of numbers")
    attributes = edges.others({"src", "dst"}, {"src", "dst"})
    x = nodes.numbers(features, np.float32)
    if not len(x):
        raise InputError(f"{nodes.path} has no row below its first line: give one for every node")
    src, dst, ids = _ends(nodes, edges)
    masks = _masks_from_words(nodes) if by_word else {name: _truth(nodes, name) for name in MASKS}
    attr = _narrowed(edges.numbers(attributes, np.float64)) if attributes else None
    return RawGraph(
        src=src,
        dst=dst,
        x=x,
        y=nodes.numbers(label_sets, np.float32) if label_sets else _labels(nodes),
        train_mask=masks["train"],
        val_mask=masks["val"],
        test_mask=masks["test"],
        name=folder.resolve().name,
        edge_attr=attr[:, 0] if attr is not None and attr.shape[1] == 1 else attr,
        ids=ids,
    )


def open_table(folder: Path, stem: str) -> Table:
    """Open folder/stem.parquet or folder/stem.csv."""
    parquet = folder / f"{stem}.parquet"
    if parquet.exists():
        open_regular(parquet).close()
        return _parquet(parquet)
    for path in (folder / f"{stem}.csv", folder / f"{stem}.csv.gz"):
        if path.exists():
            return _csv(path)
    raise InputError(f"{folder} has no {stem}.parquet and no {stem}.csv: a folder of tables needs edges and nodes")


def _csv(path: Path) -> Table:
    names = read_header(path)
    at = {name: i for i, name in enumerate(names)}
    if len(at) < len(names):
        raise InputError(f"{path} names a column twice: rename one of {', '.join(names)}")

    def numbers(columns: list[str], dtype: type) -> np.ndarray:
        return read_matrix(path, dtype, [at[name] for name in columns], names, skip=1)

    def keys(column: str, may_be_words: bool) -> np.ndarray:
        try:
            return read_matrix(path, np.int64, [at[column]], names, skip=1)[:, 0]
        except InputError:
            if may_be_words:
                return read_words(path, at[column], skip=1)
            raise

    return Table(path, names, numbers, keys, lambda column: read_words(path, at[column], skip=1))


def _parquet(path: Path) -> Table:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError(f"{path} needs pyarrow: pip install 'isthmus[parquet]', or give CSV files") from None
    try:
        file = pq.ParquetFile(path)
        names = file.schema_arrow.names
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise InputError(f"{path} is not a whole Parquet file: copy or write it again") from None
    if len(set(names)) < len(names):
        raise InputError(f"{path} names a column twice: rename one of {', '.join(names)}")
    check_unpacked(path, path.stat().st_size, 8 * file.metadata.num_rows * len(names))

    def column(name: str) -> pa.Array:
        try:
            chunk = file.read([name]).column(0).combine_chunks()
        except (pa.ArrowException, OSError):
            raise InputError(f"{path} is damaged in column {name!r}: copy or write it again") from None
        return chunk.chunk(0) if isinstance(chunk, pa.ChunkedArray) else chunk

    def numbers(columns: list[str], dtype: type) -> np.ndarray:
        out = []
        for name in columns:
            values, width = column(name), 1
            if values.null_count:
                raise InputError(f"{path} column {name!r} has empty cells: fill them in")
            if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
                width = len(values[0]) if len(values) else 0
                if not np.array_equal(np.diff(values.offsets.to_numpy()), np.full(len(values), width)):
                    raise InputError(f"{path} column {name!r} has lists of different lengths: make them equal")
                values = values.flatten()
            elif pa.types.is_fixed_size_list(values.type):
                width, values = values.type.list_size, values.flatten()
            if not any(test(values.type) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)):
                raise InputError(f"{path} column {name!r} holds {values.type}, not numbers: convert or drop it")
            block = values.to_numpy(zero_copy_only=False).reshape(-1, width)
            out.append(block if block.dtype.kind == "f" else block.astype(dtype))
        return out[0] if len(out) == 1 else np.concatenate(out, axis=1)

    def keys(name: str, may_be_words: bool) -> np.ndarray:
        values = column(name)
        if values.null_count:
            raise InputError(f"{path} column {name!r} has empty cells: every row needs an id")
        if pa.types.is_integer(values.type):
            return values.to_numpy(zero_copy_only=False)
        if may_be_words:
            return words(name)
        raise InputError(f"{path} column {name!r} holds {values.type}: give row numbers, or give the nodes a column id")

    def words(name: str) -> np.ndarray:
        try:
            found = [_word(value) for value in column(name).to_pylist()]
        except UnicodeDecodeError:
            raise InputError(f"{path} is damaged in column {name!r}: copy or write it again") from None
        check_unpacked(path, path.stat().st_size, 4 * max(map(len, found), default=0) * len(found))
        return np.array(found, dtype=str)

    return Table(path, names, numbers, keys, words)


def _word(value: object) -> str:
    if value is None or value != value:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def _ends(nodes: Table, edges: Table) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return both ends of every edge as rows of the nodes file, and the ids of the nodes if there are any."""
    named = "id" in nodes.names
    src, dst = edges.keys("src", named), edges.keys("dst", named)
    if not named:
        return src, dst, None
    ids = nodes.keys("id", True)
    if np.result_type(ids, src, dst).kind not in "iu":  # some are words (then 007 is not 7), or too large for int64
        ids, src, dst = nodes.words("id"), edges.words("src"), edges.words("dst")
    src = _positions(ids, src, nodes.path, edges.path, "src")
    return src, _positions(ids, dst, nodes.path, edges.path, "dst"), ids


def _narrowed(numbers: np.ndarray) -> np.ndarray:
    """Return the numbers in float32, unless that changes a whole number, such as seconds since 1970."""
    narrow = numbers.astype(np.float32)
    return numbers if ((narrow != numbers) & (np.rint(numbers) == numbers)).any() else narrow


def _positions(ids: np.ndarray, ends: np.ndarray, nodes: Path, edges: Path, column: str) -> np.ndarray:
    """Replace ids by the rows that have them."""
    order = np.argsort(ids, kind="stable")
    ranked = ids[order]
    twice = np.flatnonzero(ranked[1:] == ranked[:-1])
    if len(twice):
        raise InputError(f"{nodes}: id {ranked[twice[0]]} is in two rows: give every node one row")
    place = np.minimum(np.searchsorted(ranked, ends), len(ids) - 1)
    lost = np.flatnonzero(ranked[place] != ends)
    if len(lost):
        where = f"{edges} row {lost[0] + 1}: {column} {ends[lost[0]]}"
        raise InputError(f"{where} is not an id of {nodes.name}: add the node or drop the edge")
    return order[place]


def _labels(nodes: Table) -> np.ndarray:
    """Return the class numbers, or values that are no whole numbers; an empty cell is an unlabelled node."""
    words = nodes.words("label")
    words = np.where(words == "", "-1", words)
    if all(VALUE.fullmatch(word) for word in words.tolist()) and any("." in word for word in words.tolist()):
        values = np.where(nodes.words("label") == "", np.nan, words.astype(np.float64))
        if check.is_regression(values, None):
            return values
    strange = (row for row, word in enumerate(words.tolist()) if not CLASS.fullmatch(word))
    if (row := next(strange, None)) is not None:
        where = f"{nodes.path} row {row + 1}: label {str(words[row])!r}"
        raise InputError(f"{where} is not a class number: give 0 to C − 1, or leave it empty")
    return np.char.partition(words, ".")[:, 0].astype(np.int64)


def _masks_from_words(nodes: Table) -> dict[str, np.ndarray]:
    words = np.char.lower(nodes.words("split"))
    strange = sorted(set(np.unique(words).tolist()) - set(SPLITS))
    if strange:
        row = int(np.flatnonzero(words == strange[0])[0]) + 1
        raise InputError(f"{nodes.path} row {row}: split {strange[0]!r} is unknown: write train, val, test or nothing")
    plain = np.array([SPLITS[word] for word in words.tolist()])
    return {name: plain == name for name in MASKS}


def _truth(nodes: Table, name: str) -> np.ndarray:
    words = np.char.lower(nodes.words(name))
    strange = sorted(set(np.unique(words).tolist()) - set(TRUTH))
    if strange:
        row = int(np.flatnonzero(words == strange[0])[0]) + 1
        where = f"{nodes.path} row {row}, column {name!r}"
        raise InputError(f"{where}: {strange[0]!r} is neither true nor false: write 1 or 0")
    return np.array([TRUTH[word] for word in words.tolist()])
