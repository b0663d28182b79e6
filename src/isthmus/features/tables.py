"""Named rows of nodes and edges, as they lie in the memory-mapped files of the parts that are on this machine."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from isthmus import kernels
from isthmus.device import is_host
from isthmus.errors import InputError
from isthmus.graph.graph import SparseRows
from isthmus.partition.book import Book
from isthmus.shard.load import as_tensor

NODE_DATA = ("x", "y", "train_mask", "val_mask", "test_mask", "nodes", "degree")
"""The data of nodes that every part has; ``nodes`` are original ids."""


class Table:
    """Rows of the nodes of all parts, of which this machine has some; other rows are asked from their owners."""

    def __init__(self, ranges: Tensor, pieces: dict[int, Tensor | SparseRows]):
        """``ranges``: part k has the rows ``ranges[k]:ranges[k+1]``; ``pieces``: those of the parts that are here."""
        self.ranges, self.pieces = ranges, pieces
        like = next(iter(pieces.values()))
        self.like = take(like, torch.empty(0, dtype=torch.int64))

    @staticmethod
    def of(book: Book, name: str, parts: Iterable[int]) -> Table:
        return Table(torch.tensor(book.ranges), {k: column(getattr(book.part(k), name)) for k in parts})

    @property
    def is_sparse(self) -> bool:
        return isinstance(next(iter(self.pieces.values())), SparseRows)

    def part_of(self, ids: Tensor) -> Tensor:
        """Return the part of each row, int64."""
        return torch.searchsorted(self.ranges, ids, right=True) - 1

    def take(self, ids: Tensor, out: Tensor | None = None, at: Tensor | None = None) -> Tensor:
        """Return some rows (int64, of parts that are here), or write them to ``out[at]``."""
        part = self.part_of(ids)
        if out is None and len(ids) and bool((part == part[0]).all()):
            return take(self._piece(int(part[0])), ids - self.ranges[part[0]])
        out = self.like.new_empty(len(ids), *self.like.shape[1:]) if out is None else out
        for k in part.unique().tolist():
            some = (part == k).nonzero().flatten()
            out[some if at is None else at[some]] = take(self._piece(k), ids[some] - self.ranges[k])
        return out

    def take_sparse(self, ids: Tensor) -> list[Tensor]:
        """Return some rows of a sparse table: the length of each (int32), then columns and values of all."""
        part, found, places = self.part_of(ids), list[SparseRows](), [torch.empty(0, dtype=torch.int64)]
        for k in part.unique().tolist():
            places.append((part == k).nonzero().flatten())
            piece = self._piece(k)
            assert isinstance(piece, SparseRows)
            found.append(piece.take((ids[places[-1]] - self.ranges[k]).numpy()))
        if not found:
            return [torch.empty(0, dtype=torch.int32), torch.empty(0, dtype=torch.int32), self.like.new_empty(0)]
        some = SparseRows.stack(found).take(torch.cat(places).argsort().numpy())
        lengths = torch.from_numpy(some.indptr).diff().to(torch.int32)
        return [lengths, torch.from_numpy(some.indices), torch.from_numpy(some.data)]

    def _piece(self, part: int) -> Tensor | SparseRows:
        if part not in self.pieces:
            raise InputError(f"the rows of part {part} are not here: ask the worker that owns it")
        return self.pieces[part]


def column(array: np.ndarray | SparseRows) -> Tensor | SparseRows:
    """Return an array of a part or graph as rows; a mask with one split is one column."""
    if isinstance(array, SparseRows):
        return array
    return as_tensor(array[:, 0] if array.ndim == 2 and array.dtype == bool and array.shape[1] == 1 else array)


def take(rows: Tensor | SparseRows, at: Tensor) -> Tensor:
    """Return some rows (int64), dense; by the prefetching loop where it can."""
    if isinstance(rows, SparseRows):
        some = rows.take(at.numpy())
        lengths = torch.from_numpy(some.indptr).diff()
        return dense(lengths, torch.from_numpy(some.indices), torch.from_numpy(some.data), rows.width)
    if rows.ndim == 2 and rows.shape[1] and rows.stride(1) == 1 and is_host(rows.device):
        return kernels.gather_rows(rows, at)
    return rows.index_select(0, at.to(rows.device))


def dense(lengths: Tensor, columns: Tensor, values: Tensor, width: int) -> Tensor:
    """Return sparse rows as a matrix [m, width]; entries that are stored twice are summed."""
    out = values.new_zeros(len(lengths), width)
    targets = torch.arange(len(lengths)).repeat_interleave(lengths)
    return out.index_put_((targets, columns.long()), values, accumulate=True)
