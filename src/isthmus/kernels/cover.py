"""Minimum vertex cover of a bipartite graph: the fewest rows and columns that touch every edge."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import torch
from torch import Tensor

from isthmus.kernels.csr import Csr
from isthmus.kernels.ops import _core_for, _int, _ptr

ALL = 2**62


def vertex_cover(csr: Csr, lend: int = 0) -> tuple[Tensor, Tensor]:
    """Return which rows and which columns are covered (bool [rows], bool [cols]); as few as any cover has.

    An edge whose row is not covered is lent: its column is covered instead. Rows are the sources of cut edges, columns
    their targets, and lent edges are those that the owner of the sources sums. Covers of the least size differ in how
    many edges are lent: as few as possible, or while there is a choice more, up to ``lend`` (`ALL`: as many as can be).
    The result depends on the arguments alone.
    """
    if not csr.indices.is_cpu:  # once per run, and no loop for a device
        rows, cols = vertex_cover(csr.to("cpu"), lend)
        return rows.to(csr.indices.device), cols.to(csr.indices.device)
    indptr, indices = csr.indptr.contiguous(), csr.indices.contiguous()
    rows, cols = torch.empty(csr.num_rows, dtype=torch.bool), torch.empty(csr.num_cols, dtype=torch.bool)
    lib = _core_for(indices)
    if lib is None:
        return _twin(csr, lend)
    shape = _int(csr.num_rows), _int(csr.num_cols)
    lib.vertex_cover(*shape, _ptr(indptr), _ptr(indices), _int(lend), _ptr(rows), _ptr(cols))
    return rows, cols


def _twin(csr: Csr, lend: int) -> tuple[Tensor, Tensor]:
    """Find the matching path by path, and settle the choice one strongly connected component after the other."""
    indptr = csr.indptr.tolist()
    columns = [csr.indices[a:b].tolist() for a, b in pairwise(indptr)]
    partner = _matching(columns)  # column → row
    column_of = {row: col for col, row in partner.items()}
    follows = [{partner.get(col) for col in cols} for cols in columns]  # None: a column without a partner

    def reached(start: int) -> set[int | None]:
        found: set[int | None] = {start}
        queue = deque(found)
        while queue:
            row = queue.popleft()
            new = follows[row] - found if row is not None else set()
            found |= new
            queue.extend(new)
        return found

    lent: set[int | None] = set()  # rows that are not covered
    for row in range(csr.num_rows):
        if row not in column_of:
            lent |= reached(row)
    spare = lend - sum(len(columns[row]) for row in lent if row is not None)
    reach = {row: reached(row) for row in range(csr.num_rows) if row not in lent}
    for row in sorted(reach, key=lambda row: (len(reach[row]), row)):  # what a row depends on comes before it
        together = {other for other in reach[row] if other in reach and row in reach[other]}
        edges = sum(len(columns[other]) for other in together)
        if row not in lent and None not in reach[row] and reach[row] <= lent | together and edges <= spare:
            lent |= together
            spare -= edges
    rows = torch.tensor([row not in lent for row in range(csr.num_rows)], dtype=torch.bool)
    cols = torch.zeros(csr.num_cols, dtype=torch.bool)
    cols[[col for col, row in partner.items() if row in lent]] = True
    return rows, cols


def _matching(columns: list[list[int]]) -> dict[int, int]:
    """Return a maximum matching, column → row, by one alternating path after the other."""
    partner: dict[int, int] = {}
    for start in range(len(columns)):
        came_from: dict[int, int] = {}  # column → the row from which it was reached
        queue, end = deque([start]), None
        while queue and end is None:
            row = queue.popleft()
            for col in columns[row]:
                if col not in came_from:
                    came_from[col] = row
                    if col not in partner:
                        end = col
                        break
                    queue.append(partner[col])
        column_of = {row: col for col, row in partner.items()}
        while end is not None:
            row = came_from[end]
            partner[end], end = row, column_of.get(row)
    return partner
