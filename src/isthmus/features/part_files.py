"""Feature rows of other workers' parts, read from the files of those parts that are on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.features.scaling import Scaling
from isthmus.features.tables import Table
from isthmus.graph.graph import SparseRows
from isthmus.kernels import Csr, SparseMatrix
from isthmus.partition import Book


@dataclass(frozen=True)
class PartFiles:
    """The feature rows of some parts as the memory maps of their files, in the form that a run reads them."""

    table: Table
    here: Tensor  # bool [parts]
    dtype: torch.dtype
    scaling: Scaling

    @staticmethod
    def of(book: Book, parts: Iterable[int], dtype: torch.dtype, scaling: Scaling) -> PartFiles:
        """Return the rows of some parts, at least one, whose files are here."""
        table = Table.of(book, "x", parts)
        return PartFiles(table, torch.tensor([k in table.pieces for k in range(book.num_parts)]), dtype, scaling)

    def read(self, nodes: Tensor, places: Tensor, out: Tensor) -> Tensor:
        """Write the rows of ``nodes[places]`` (int64, book ids) that are here to ``out[places]``; return the rest."""
        part = self.table.part_of(nodes[places])
        for k in part.unique().tolist():
            if self.here[k]:
                some = places[part == k]
                out[some] = self._rows(k, nodes[some] - self.table.ranges[k], out).to(out.dtype)
        return places[~self.here[part]]

    def _rows(self, part: int, rows: Tensor, like: Tensor) -> Tensor:
        """Return some rows of a part (int64), dense and scaled; where that is all, in the dtype of ``like``."""
        piece = self.table.pieces[part]
        if isinstance(piece, SparseRows):
            some = piece.take(rows.numpy())
            pattern = Csr(torch.from_numpy(some.indptr), torch.from_numpy(some.indices), piece.width)
            scaled = self.scaling.apply(SparseMatrix(pattern, torch.from_numpy(some.data).to(self.dtype)))
            return scaled.dense() if isinstance(scaled, SparseMatrix) else scaled
        if self.scaling.how == "raw" and piece.dtype == self.dtype:
            return kernels.gather_rows(piece, rows, like.new_empty(len(rows), piece.shape[1]))
        scaled = self.scaling.apply(kernels.gather_rows(piece, rows).to(self.dtype))
        assert isinstance(scaled, Tensor)
        return scaled
