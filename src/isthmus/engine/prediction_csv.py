"""Write predictions as a CSV file, which every spreadsheet, database and language reads."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from isthmus.engine.predictions import Column


class CsvTable:
    """A CSV file: ``node`` and the columns; one that is `width` wide becomes ``name_0`` … ``name_(width-1)``."""

    def __init__(self, paths: Sequence[Path], chosen: Sequence[Column], rows: int):
        self.file = paths[0].open("w", encoding="utf-8", newline="")
        self.rows = csv.writer(self.file, lineterminator="\n")
        self.rows.writerow(["node", *(name for column in chosen for name in _names(column))])

    def append(self, nodes: np.ndarray, block: dict[str, np.ndarray]) -> None:
        columns = [_text(nodes), *(_text(one) for values in block.values() for one in _narrow(values))]
        self.rows.writerows(zip(*columns, strict=True))

    def close(self) -> None:
        self.file.close()


def _names(column: Column) -> list[str]:
    if not column.written_shape:
        return [column.name]
    return [f"{column.name}_{k}" for k in range(column.width or 0)]


def _narrow(values: np.ndarray) -> Sequence[np.ndarray]:
    """Split [k] or [k, width] into columns of [k]."""
    return [values] if values.ndim == 1 else list(values.T)


def _text(values: np.ndarray) -> list[str]:
    """Return the shortest digits that give the same number again; Python's float of a float32 would have more."""
    return values.astype(str).tolist()
