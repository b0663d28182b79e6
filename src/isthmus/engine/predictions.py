"""The columns that can be predicted for every node, and the files to which they are written front to back.

The source's own name of a node is also a column, ``id``; it is sent as bytes, since it may be a word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.errors import InputError
from isthmus.files.array_file import ArrayFile
from isthmus.tasks.task import LABELS, VALUES, Task

BLOCK_BYTES = 32 << 20  # bytes of rows that are gathered and written at a time
WHAT = ("class", "score", "scores", "embedding", "value")
TABLES = (".parquet", ".csv")  # one file for all columns
SUFFIXES = (".npy", *TABLES)


@dataclass(frozen=True)
class Known:
    """The model's output for k nodes: logits [k, C], embeddings [k, H], ids as bytes [k, B] (B = 0 if none)."""

    logits: Tensor
    embeddings: Tensor
    ids: Tensor

    def take(self, rows: Tensor) -> Known:
        return Known(self.logits[rows], self.embeddings[rows], self.ids[rows])


@dataclass(frozen=True)
class Column:
    """A column of the output: one number per node, or `width` of them, computed from `Known`."""

    name: str
    dtype: torch.dtype
    width: int | None
    make: Callable[[Known], Tensor]
    written: np.dtype | None = None
    """The type that is written, if the column is sent as bytes; None: the column's own."""

    @property
    def shape(self) -> tuple[int, ...]:
        return () if self.width is None else (self.width,)

    @property
    def row_bytes(self) -> int:
        return (self.width or 1) * self.dtype.itemsize

    @property
    def kind(self) -> np.dtype:
        """The type that is written."""
        return self.written or torch.empty(0, dtype=self.dtype).numpy().dtype

    @property
    def written_shape(self) -> tuple[int, ...]:
        return self.shape if self.written is None else ()

    def of(self, known: Known) -> Tensor:
        return self.make(known).to(self.dtype).contiguous()

    def values(self, whole: Tensor) -> np.ndarray:
        """Return the received values in the type that is written, [k] or [k, width]."""
        return whole.numpy() if self.written is None else whole.numpy().view(self.written)[:, 0]


def columns(what: Sequence[str], task: Task, hidden: int, one_score: bool) -> list[Column]:
    """Return the columns asked for.

    ``class``: the likeliest class, or 0 and 1 for each of several labels. ``scores``: the probability of every class.
    ``score``: the same, or with `one_score` and one label per node only that of the likeliest class. ``embedding``: the
    input of the last convolution, or the output of a run that has learnt embeddings. ``value``: the output for every
    target of a regression.
    """
    real, classes, multilabel = torch.float32, task.width, task.kind == LABELS
    embedding = Column("embedding", real, hidden, lambda known: known.embeddings)
    if task.kind == VALUES:
        one = None if classes == 1 else classes
        value = Column("value", real, one, lambda known: known.logits[:, 0] if one is None else known.logits)
        return [column for name in what for column in (value, embedding) if column.name == name]
    chances = torch.sigmoid if multilabel else (lambda logits: logits.softmax(1))
    scores = Column("scores", real, classes, lambda known: chances(known.logits))
    if multilabel:
        said = Column("class", torch.uint8, classes, lambda known: known.logits > 0)
    else:
        said = Column("class", torch.int64, None, lambda known: known.logits.argmax(1))
    if one_score and not multilabel:
        score = Column("score", real, None, lambda known: chances(known.logits).amax(1))
    else:
        score = Column("score", real, classes, scores.make)
    all_of_them = (said, score, scores, embedding)
    return [column for name in what for column in all_of_them if column.name == name]


def id_column(kind: np.dtype) -> Column:
    """Return the column of the source's names of the nodes: integers or words."""
    return Column("id", torch.uint8, kind.itemsize, lambda known: known.ids, kind)


def as_bytes(ids: np.ndarray) -> Tensor:
    """View an array [k] of any type as bytes, uint8 [k, B]."""
    return torch.from_numpy(np.array(ids).view(np.uint8).reshape(len(ids), ids.dtype.itemsize))


def block_rows(chosen: Sequence[Column]) -> int:
    """Return how many rows are gathered and written at a time."""
    return max(1, BLOCK_BYTES // sum(column.row_bytes for column in chosen))


def targets(out: Path, what: Sequence[str], ids: bool) -> list[Path]:
    """Return the files that hold the columns: one table, or an array each, named STEM.class.npy etc. if several.

    With `ids`, STEM.id.npy comes first.
    """
    if out.suffix in TABLES:
        return [out]
    arrays = [out] if len(what) == 1 else [_beside(out, name) for name in what]
    return [_beside(out, "id"), *arrays] if ids else arrays


def _beside(out: Path, name: str) -> Path:
    return out.with_name(f"{out.stem}.{name}.npy")


class Arrays:
    """A ``.npy`` file for each column, [rows] or [rows, width]."""

    def __init__(self, paths: Sequence[Path], chosen: Sequence[Column], rows: int):
        self.files = {
            column.name: ArrayFile(path, column.kind, (rows, *column.written_shape))
            for path, column in zip(paths, chosen, strict=True)
        }

    def append(self, nodes: np.ndarray, block: dict[str, np.ndarray]) -> None:
        for name, values in block.items():
            self.files[name].append(values)

    def close(self) -> None:
        for file in self.files.values():
            file.close()


class Table:
    """A Parquet file: ``node`` and the columns, wide ones as lists of fixed size; a row group for each block."""

    def __init__(self, paths: Sequence[Path], chosen: Sequence[Column], rows: int):
        self.arrow, parquet = pyarrow()
        kinds = {column.name: self._kind(column) for column in chosen}
        self.schema = self.arrow.schema({"node": self.arrow.int64(), **kinds})
        # Probabilities are hardly ever equal: a dictionary of them takes time and memory and saves nothing.
        self.file = parquet.ParquetWriter(paths[0], self.schema, use_dictionary=False)

    def append(self, nodes: np.ndarray, block: dict[str, np.ndarray]) -> None:
        arrays = [self.arrow.array(nodes), *(self._array(values) for values in block.values())]
        self.file.write_table(self.arrow.Table.from_arrays(arrays, schema=self.schema), row_group_size=len(nodes))

    def close(self) -> None:
        self.file.close()

    def _kind(self, column: Column) -> Any:
        one = self.arrow.string() if column.kind.kind == "U" else self.arrow.from_numpy_dtype(column.kind)
        return self.arrow.list_(one, column.width) if column.written_shape else one

    def _array(self, values: np.ndarray) -> Any:
        flat = self.arrow.array(values.reshape(-1))
        return flat if values.ndim == 1 else self.arrow.FixedSizeListArray.from_arrays(flat, values.shape[1])


def pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            "Parquet needs pyarrow: pip install 'isthmus[parquet]', or give an --out that ends in .csv or .npy"
        ) from None
    return pyarrow, pyarrow.parquet
