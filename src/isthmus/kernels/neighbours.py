"""Draws of neighbours for mini-batches, and numbers for the nodes that they meet.

What a row gets depends on (stream, id of its node) alone: never on the other rows, on threads or on where it is drawn.
A row is a span of a list of edges; only integers and exactly rounded operations decide, so that the native core, the
torch twin and any device draw the same.
"""

from __future__ import annotations

import ctypes
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.kernels import neighbours_twin as twin
from isthmus.kernels.buffers import room
from isthmus.kernels.csr import Csr, Spans
from isthmus.kernels.ops import _core_for, _int, _ptr


class Drawn(NamedTuple):
    """The edges drawn for some rows, those of row i at ``indptr[i]:indptr[i+1]``."""

    indptr: Tensor  # int64 [m + 1]
    columns: Tensor  # int32 [e], of the pattern that was drawn from
    numbers: Tensor | None  # int64 [e], the numbers of these edges in that pattern; only if asked for
    threshold: Tensor | None = None  # float64 [m]: of draws by weight without replacement, what the last key was below


def row_spans(csr: Csr, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return first edge and degree of some rows (int32 [m]) of a pattern, both int64 [m]."""
    lib = _core_for(csr.indptr)
    if lib is None:
        begin = csr.indptr[rows.long()]
        return begin, csr.indptr[rows.long() + 1] - begin
    begin, degree = (torch.empty(len(rows), dtype=torch.int64) for _ in range(2))
    lib.row_spans(_int(len(rows)), _ptr(rows), _ptr(csr.indptr), _ptr(begin), _ptr(degree))
    return begin, degree


def gather_ids(ids: Tensor, at: Tensor) -> Tensor:
    """Return ``ids[at]``, int64 [m], for int64 ids and int32 places."""
    lib = _core_for(ids)
    if lib is None:
        return ids[at.long()]
    out = torch.empty(len(at), dtype=torch.int64)
    lib.gather_ids(_int(len(at)), _ptr(at), _ptr(ids), _ptr(out))
    return out


def draw_uniform(
    stream: int, indices: Tensor, spans: Spans, fanout: int, replace: bool = False, numbers: bool = False
) -> Drawn:
    """Draw ``fanout`` edges of every row (all with -1), each as likely; without ``replace`` distinct ones (Floyd).

    A row of d edges gets min(fanout, d) of them, or with ``replace`` and d > 0 exactly ``fanout``.
    """
    if replace and fanout >= 0:
        counts = torch.where(spans.degree > 0, fanout, 0)
    else:
        replace, counts = False, spans.degree if fanout < 0 else spans.degree.clamp_max(fanout)
    indptr = _starts(counts)
    lib = _core_for(indices)
    if lib is None:
        drawn = twin.draw_uniform(stream, spans, indptr, replace)
        return Drawn(indptr, indices[drawn], drawn if numbers else None)
    columns = room((int(indptr[-1]),), torch.int32)
    edges = torch.empty(len(columns), dtype=torch.int64) if numbers else None
    lib.draw_uniform(
        *(ctypes.c_uint64(stream), _int(len(counts)), *map(_ptr, spans), int(replace), _ptr(indptr)),
        *(_ptr(indices), _ptr(columns), _ptr(edges), torch.get_num_threads()),
    )
    return Drawn(indptr, columns, edges)


def draw_by_weight(
    stream: int, indices: Tensor, spans: Spans, weight: Tensor, fanout: int, replace: bool = False
) -> Drawn:
    r"""Draw ``fanout`` edges of every row by weight (float32 [edges]); one of weight 0 is never drawn.

    Edge j of a row has the key :math:`E_j / w_j` with an exponential variate E_j: the smallest keys are drawn, which is
    a draw without replacement in proportion to the weights. With ``replace``, each draw is the winner of a race of its
    own.
    """
    lib = _core_for(indices)
    if lib is None:
        counts = twin.count_weighted(spans, weight).clamp_max(fanout)
    else:
        counts = torch.empty(len(spans.begin), dtype=torch.int64)
        about = (_int(len(counts)), _ptr(spans.begin), _ptr(spans.degree), _ptr(weight))
        lib.count_weighted(*about, _int(fanout), _ptr(counts), torch.get_num_threads())
    if replace:
        counts = torch.where(counts > 0, fanout, 0)
    indptr = _starts(counts)
    if lib is None:
        edges, threshold = twin.draw_by_weight(stream, spans, weight, indptr, replace)
    else:
        edges, threshold = (
            torch.empty(int(indptr[-1]), dtype=torch.int64),
            torch.empty(len(counts), dtype=torch.float64),
        )
        lib.draw_by_weight(
            *(ctypes.c_uint64(stream), _int(len(counts)), *map(_ptr, spans), _ptr(weight), int(replace)),
            *(_ptr(indptr), _ptr(edges), _ptr(threshold), torch.get_num_threads()),
        )
    return Drawn(indptr, indices[edges], edges, None if replace else threshold * 2.0**-40)


def draw_labor(
    stream: int, indices: Tensor, spans: Spans, names: Tensor | None, fanout: int, numbers: bool = False
) -> Drawn:
    r"""Draw by LABOR-0: row i keeps its edge from u iff :math:`r_u < fanout / d_i`, with one uniform r_u for all rows.

    ``names`` (int64 [columns]; None: the column itself) keys r_u. A row gets ``fanout`` edges on average, all of them
    where it has no more.
    """
    lib = _core_for(indices)
    if lib is None:
        indptr, drawn = twin.draw_labor(stream, indices, spans, names, fanout)
        return Drawn(indptr, indices[drawn], drawn if numbers else None)
    counts, starts, threads = torch.empty_like(spans.begin), _starts(spans.degree), torch.get_num_threads()
    every, table = int(starts[-1]), None
    if names is not None and every > len(names):  # make the numbers r of all columns once
        table = torch.empty(len(names), dtype=torch.int32)
        lib.labor_table(ctypes.c_uint64(stream), _int(len(names)), _ptr(names), _ptr(table))
    columns = room((every + 1,), torch.int32)  # far more than are touched
    edges = room((every + 1,), torch.int64) if numbers else None
    lib.draw_labor(
        *(ctypes.c_uint64(stream), _int(len(counts)), _ptr(spans.begin), _ptr(spans.degree), _ptr(indices)),
        *(_ptr(names), _ptr(table), _int(fanout), _ptr(starts), _ptr(counts), _ptr(columns), _ptr(edges)),
        threads,
    )
    indptr, ends = _starts(counts), [len(counts) * k // threads for k in range(threads + 1)]
    written = [(int(starts[a]), int(starts[a] + indptr[b] - indptr[a])) for a, b in pairwise(ends)]
    kept = [torch.cat([one[begin:end] for begin, end in written]) for one in (columns, edges) if one is not None]
    return Drawn(indptr, kept[0], kept[1] if numbers else None)


def number_nodes(met: Tensor, base: int, table: Tensor, nodes: Tensor, known: int) -> tuple[Tensor, int]:
    """Give the nodes ``met`` numbers in the order of their first appearance; int32 [len(met)], and how many have one.

    Node u has the number ``table[u] - base`` if that is not negative; new nodes are numbered from ``known`` on and
    written to ``nodes``, which has room for one more than there are. Shapes: ``met`` and ``nodes`` both int32 or both
    int64, ``table`` int32 [N] taken as unsigned.
    """
    lib = _core_for(met)
    if lib is None:
        return twin.number_nodes(met, base, table, nodes, known)
    numbers = room((len(met),), torch.int32)
    loop = lib.number_nodes_i32 if met.dtype == torch.int32 else lib.number_nodes_i64
    loop.restype = ctypes.c_int64
    known = loop(
        *(_int(len(met)), _ptr(met), ctypes.c_uint32(base), _ptr(table), _int(known), _ptr(nodes), _ptr(numbers)),
    )
    return numbers, known


def sort_rows(csr: Csr, names: Tensor | None, order: bool = False, in_place: bool = False) -> tuple[Csr, Tensor | None]:
    """Return the pattern with the columns of each row ascending by name (int64 [columns]; None: the column itself).

    With ``order``, also return where each edge was, int64 [edges]. ``in_place``: the given pattern is changed.
    """
    lib = _core_for(csr.indices)
    if lib is None:
        found, moved = twin.sort_rows(csr, names)
        return (Csr(csr.indptr, csr.indices.copy_(found.indices), csr.num_cols) if in_place else found), moved
    indices = csr.indices if in_place else csr.indices.clone()
    places = torch.empty(csr.num_edges, dtype=torch.int64) if order else None
    about = (_int(csr.num_rows), _ptr(csr.indptr), _ptr(indices), _ptr(names), _ptr(places))
    lib.sort_rows(*about, torch.get_num_threads())
    return Csr(csr.indptr, indices, csr.num_cols), places


def _starts(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])
