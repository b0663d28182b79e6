"""Random draws that every worker can repeat, since they depend on (stream, number) alone; and the patterns drawn."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from isthmus.errors import InputError
from isthmus.kernels import twin
from isthmus.kernels.buffers import room
from isthmus.kernels.csr import Csr
from isthmus.kernels.ops import _core_for, _int, _ptr


def stream(*numbers: int) -> int:
    """Return a 64-bit key for the random draws that these numbers name (say seed, step and call)."""
    key = 0
    for number in numbers:
        key = ((key ^ (number & (2**64 - 1))) * twin.GOLDEN + 0xD1B54A32D192ED03) & (2**64 - 1)
        key ^= key >> 29
    return key


def draw_rows(stream: int, count: int, size: int, device: torch.device | None = None) -> Tensor:
    r"""Draw `size` of the numbers 0 … count-1 without replacement, every subset as likely; ascending, int32 [size].

    Number j has the key :math:`mix_{64}(stream + j \cdot golden)`; the smallest keys are taken. They are the same on
    every ``device`` (None: that of the native core).
    """
    if not 0 <= size <= count < 2**31:
        raise InputError(f"cannot draw {size} of {count} rows: draw between none and all of fewer than 2^31")
    if size == count:
        return torch.arange(count, dtype=torch.int32, device=device)
    rows = torch.empty(size, dtype=torch.int32, device=device)
    lib = _core_for(rows)
    if lib is None:
        return twin.draw_rows(stream, count, size, rows.device)
    if size:
        lib.draw_rows(ctypes.c_uint64(stream), _int(count), _int(size), _ptr(rows))
    return rows


def random_keys(stream: int, ids: Tensor) -> Tensor:
    r"""Return a random number for every id: :math:`mix_{64}(stream + id \cdot golden)` as int64; ids int64."""
    return twin.random_keys(stream, ids)


def draw_edges(stream: int, csr: Csr, row_ids: Tensor, col_ids: Tensor, p: float | Tensor, symmetric: bool) -> Tensor:
    r"""Draw which edges are kept, each with its own probability; bool [edges].

    .. math:: keep_e \iff \lfloor mix_{64}(mix_{64}(stream + a \cdot golden) + b \cdot golden) / 2^{32} \rfloor
              < p_e 2^{32}

    with (a, b) the ids of the edge's row and column or, if ``symmetric``, the smaller and the larger of them: then both
    directions of an edge share one draw. Shapes: ``row_ids`` int64 [rows], ``col_ids`` int64 [cols], ``p`` one number
    or float32 [edges].
    """
    chances = p.float().contiguous() if isinstance(p, Tensor) else None
    _fits("row_ids", row_ids, csr.num_rows)
    _fits("col_ids", col_ids, csr.num_cols)
    _fits("p", chances, csr.num_edges)
    lib = _core_for(csr.indices)
    if lib is None:
        return twin.draw_edges(stream, csr, row_ids, col_ids, p if chances is None else chances, symmetric)
    row_ids, col_ids = row_ids.long().contiguous(), col_ids.long().contiguous()
    keep = torch.empty(csr.num_edges, dtype=torch.bool)
    lib.draw_edges(
        *(ctypes.c_uint64(stream), _int(csr.num_rows), _ptr(csr.indptr), _ptr(csr.indices)),
        *(_ptr(row_ids), _ptr(col_ids), ctypes.c_double(0.0 if isinstance(p, Tensor) else p), _ptr(chances)),
        *(int(symmetric), _ptr(keep), torch.get_num_threads()),
    )
    return keep


def select_rows(csr: Csr, rows: Tensor) -> Csr:
    """Return the pattern of these rows alone, in their order, k × num_cols; rows int32 [k]."""
    begin = csr.indptr[rows.long()]
    length = csr.indptr[rows.long() + 1] - begin
    indptr = torch.cat([length.new_zeros(1), length.cumsum(0)])
    lib = _core_for(csr.indices)
    if lib is None:
        return Csr(indptr, twin.select_rows(csr, begin, indptr), csr.num_cols)
    rows, indices = rows.int().contiguous(), room((int(indptr[-1]),), torch.int32)
    lib.select_rows(
        *(_int(len(rows)), _ptr(rows), _ptr(csr.indptr), _ptr(csr.indices)),
        *(_ptr(indptr), _ptr(indices), torch.get_num_threads()),
    )
    return Csr(indptr, indices, csr.num_cols)


def select_edges(
    csr: Csr, keep: Tensor, columns: Tensor | None = None, num_cols: int | None = None
) -> tuple[Csr, Tensor]:
    """Return the pattern of the kept edges, and their numbers in `csr` (int64 [kept]). Rows without edges stay.

    ``columns`` (int32 [csr.num_cols]) gives new numbers, below ``num_cols``, to the columns that still have an edge.
    Shapes: ``keep`` bool [edges].
    """
    if (columns is None) != (num_cols is None):
        raise InputError("select_edges takes columns and num_cols together: new numbers, and how many there are")
    _fits("keep", keep, csr.num_edges)
    _fits("columns", columns, csr.num_cols)
    lib = _core_for(csr.indices)
    if lib is None:
        return twin.select_edges(csr, keep, columns, num_cols)
    keep, columns = keep.bool().contiguous(), None if columns is None else columns.int().contiguous()
    indptr = torch.empty(csr.num_rows + 1, dtype=torch.int64)
    pattern = _int(csr.num_rows), _ptr(csr.indptr)
    lib.count_kept(*pattern, _ptr(keep), _ptr(indptr), torch.get_num_threads())
    kept = int(indptr[-1])
    indices, numbers = torch.empty(kept, dtype=torch.int32), torch.empty(kept, dtype=torch.int64)
    lib.select_edges(
        *(*pattern, _ptr(csr.indices), _ptr(keep), _ptr(columns)),
        *(_ptr(indptr), _ptr(indices), _ptr(numbers), torch.get_num_threads()),
    )
    return Csr(indptr, indices, csr.num_cols if num_cols is None else num_cols, csr.targets), numbers


def _fits(name: str, tensor: Tensor | None, length: int) -> None:
    if tensor is not None and tensor.shape != (length,):
        raise InputError(f"{name} has the shape {tuple(tensor.shape)}, but the pattern needs [{length}]")
