r"""Draw edges by water-filling: the sampler of PSC-GCN (alg. 2, eqs. 14-19) on sparse patterns.

Target i keeps its edge from source j with the probability :math:`p_{ij} = \min(1, level_i \cdot value_j)`. A factor of
the scores that depends on i alone is part of the level, so one number per target and one per source give the
probabilities of all edges. The rows of a pattern are the targets or, where ``transposed``, the sources.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.errors import InputError
from isthmus.kernels import twin
from isthmus.kernels.csr import Csr
from isthmus.kernels.draws import _fits
from isthmus.kernels.ops import _SUFFIX, _core_for, _int, _ptr

_FLOOR = 1e-30
_RANGE = 1e-100, 1e100  # bounds of the values, so that no product or sum of them overflows
_MARKS = 32  # edges per word of marks; every row starts a new word


class WaterFilling(NamedTuple):
    r"""Water-filled probabilities of edges: :math:`p_{ij} = \min(1, level_i \cdot value_j)`, target i and source j."""

    level: Tensor  # [targets], from `fill_levels`
    value: Tensor  # [sources], from `floored`
    coupled: bool = False
    """True: all edges of a source share one random number, so whenever one of them is kept, those with a larger p are
    kept too. False: every edge has its own."""


def floored(*values: Tensor, floor: float = _FLOOR) -> tuple[Tensor, ...]:
    r"""Return scores of sources (≥ 0) scaled so that every loop here can take them; float64, in the same shapes.

    .. math:: value_j = \max\bigl(score_j / \max_k score_k,\; floor\bigr)

    The largest score is taken over all tensors given (1 if all scores are 0), so pass those of inner and halo nodes
    together. Sources with a score of 0 get a probability too: they share equally what the others leave of the budget,
    and a row with nothing but zeros is uniform.
    """
    scores = [each.detach().double() for each in values]
    for each in scores:
        if not _within(each, 0.0, torch.finfo(torch.float64).max):
            raise InputError("scores of sources must be finite and at least 0: look for NaN or infinity in the rows")
    largest = max((float(each.max()) for each in scores if each.numel()), default=0.0)
    return tuple((each / largest).clamp_min(floor) if largest else torch.ones_like(each) for each in scores)


def fill_levels(inner: Csr, halo: Csr | None, inner_value: Tensor, halo_value: Tensor | None, budget: Tensor) -> Tensor:
    r"""Return the level of every row at which it expects to keep as many edges as its budget says; float64 [rows].

    .. math:: \sum_j \min(1, level_i \cdot value_j) = budget_i

    over the edges of row i in both patterns: theorem 2 without its sort. Each round finds the full edges (p = 1) and
    sets the level to :math:`(budget - \#full) / \sum_{not\ full} value`, until no edge becomes full. The level is +inf
    (all p = 1) if the budget is at least the number of edges, and 0 if the budget or the number of edges is 0.

    Shapes: ``inner`` rows × n, ``halo`` rows × h, ``inner_value`` [n], ``halo_value`` [h] (from `floored`; halo and its
    values are None where there is no halo), ``budget`` [rows].
    """
    if (halo is None) != (halo_value is None):
        raise InputError("fill_levels takes halo and halo_value together: a pattern, and the values of its columns")
    if halo is not None and halo.num_rows != inner.num_rows:
        raise InputError(f"halo has {halo.num_rows} rows, but inner has {inner.num_rows}: give the same rows to both")
    inner_value = _values("inner_value", inner_value, inner.num_cols)
    halo_indptr, halo_indices = None, None
    if halo is not None and halo_value is not None:
        halo_indptr, halo_indices = halo.indptr, halo.indices
        halo_value = _values("halo_value", halo_value, halo.num_cols)
    budget = _not_negative("budget", budget, inner.num_rows)
    lib = _core_for(inner.indices)
    if lib is None:
        return twin.fill_levels(inner, halo, inner_value, halo_value, budget)
    level = torch.empty_like(budget)
    lib.fill_levels(
        *(_int(inner.num_rows), _ptr(inner.indptr), _ptr(inner.indices), _ptr(inner_value)),
        *(_ptr(halo_indptr), _ptr(halo_indices), _ptr(halo_value)),
        *(_ptr(budget), _ptr(level), torch.get_num_threads()),
    )
    return level


def edge_probability(csr: Csr, filling: WaterFilling, transposed: bool = False) -> Tensor:
    """Return the probability p of every edge, float64 [edges].

    The rows of the pattern are the targets or, if ``transposed``, the sources.
    """
    of_row, of_col = _factors(csr, filling, transposed)
    lib = _core_for(csr.indices)
    if lib is None:
        return twin.edge_probability(csr, of_row, of_col)
    p = torch.empty(csr.num_edges, dtype=torch.float64)
    lib.edge_probability(*_pattern(csr), _ptr(of_row), _ptr(of_col), _ptr(p), torch.get_num_threads())
    return p


def inclusion(halo_out: Csr, filling: WaterFilling) -> Tensor:
    r"""Return the probability that each halo node is read at all, float64 [h].

    .. math:: 1 - \prod_i (1 - p_{ij}), \quad\text{or } \max_i p_{ij} \text{ if the draws are coupled}

    Shapes: ``halo_out`` h × n (its rows are the halo nodes, the sources).
    """
    of_row, of_col = _factors(halo_out, filling, transposed=True)
    lib = _core_for(halo_out.indices)
    if lib is None:
        return twin.inclusion(halo_out, of_row, of_col, filling.coupled)
    any_kept = torch.empty_like(of_row)
    lib.inclusion(
        *(*_pattern(halo_out), _ptr(of_row), _ptr(of_col), int(filling.coupled)),
        *(_ptr(any_kept), torch.get_num_threads()),
    )
    return any_kept


def draw_weighted(
    stream: int,
    csr: Csr,
    filling: WaterFilling,
    ids: tuple[Tensor, Tensor],
    *,
    transposed: bool = False,
    dtype: torch.dtype = torch.float32,
    with_edges: bool = False,
) -> tuple[Csr, Tensor, Tensor | None]:
    r"""Draw edges by their probabilities: return the pattern of those kept (same rows and columns), their weights 1/p.

    .. math:: keep_{ij} \iff \bigl(mix_{32}(low(key_i) + high(key_j)) + ½\bigr) / 2^{32} < p_{ij}, \quad
              key_v = mix_{64}(stream + v \cdot golden)

    with i and j the ids of target and source, low and high the halves of a key; if ``coupled``, low(key_i)
    is left out. The half makes the probability right to :math:`2^{-33}`, an edge of p = 1 certain (with the weight 1
    exactly) and one of p below :math:`2^{-33}` impossible, so that no weight explodes.

    The third result is the number in ``csr`` of every kept edge (int64 [kept]) if ``with_edges``, else None. A pattern
    and its transpose, drawn with ``transposed`` (as in `edge_probability`), keep the same edges. Shapes: ``ids`` of the
    rows and of the columns, int64 [rows] and [cols]; ``dtype`` float32 or float64, of the weights.
    """
    if dtype not in (torch.float32, torch.float64):
        raise InputError(f"weights of edges cannot be {dtype}: ask for float32 or float64")
    (of_row, of_col), (row_ids, col_ids) = _factors(csr, filling, transposed), ids
    _fits("row_ids", row_ids, csr.num_rows)
    _fits("col_ids", col_ids, csr.num_cols)
    row_ids, col_ids = row_ids.long().contiguous(), col_ids.long().contiguous()
    lib = _core_for(csr.indices)
    if lib is None:
        keep = twin.keep_weighted(stream, csr, (of_row, of_col), (row_ids, col_ids), transposed, filling.coupled)
        kept, numbers = twin.select_edges(csr, keep, None, None)
        weights = 1 / twin.edge_probability(kept, of_row, of_col)
        return kept, weights.to(dtype), numbers if with_edges else None
    factors, threads = (_ptr(of_row), _ptr(of_col)), torch.get_num_threads()
    marks = torch.empty(csr.num_edges // _MARKS + csr.num_rows + 1, dtype=torch.int32)
    indptr = torch.empty_like(csr.indptr)
    lib.mark_weighted(
        *(ctypes.c_uint64(stream), _int(csr.num_rows), _int(csr.num_cols), _ptr(csr.indptr), _ptr(csr.indices)),
        *(*factors, _ptr(row_ids), _ptr(col_ids), int(transposed), int(filling.coupled)),
        *(_ptr(marks), _ptr(indptr), threads),
    )
    count = int(indptr[-1])
    indices, weights = torch.empty(count, dtype=torch.int32), torch.empty(count, dtype=dtype)
    edges = torch.empty(count, dtype=torch.int64) if with_edges else None
    getattr(lib, f"weigh_marked_{_SUFFIX[dtype]}")(
        *(*_pattern(csr), *factors, _ptr(marks), _ptr(indptr), _ptr(indices), _ptr(weights), _ptr(edges), threads),
    )
    return Csr(indptr, indices, csr.num_cols, csr.targets), weights, edges


def _pattern(csr: Csr) -> tuple[ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]:
    return _int(csr.num_rows), _ptr(csr.indptr), _ptr(csr.indices)


def _factors(csr: Csr, filling: WaterFilling, transposed: bool) -> tuple[Tensor, Tensor]:
    """Return the factors of p that belong to the rows and to the columns of a pattern."""
    targets, sources = (csr.num_cols, csr.num_rows) if transposed else (csr.num_rows, csr.num_cols)
    level, value = _not_negative("level", filling.level, targets), _values("value", filling.value, sources)
    return (value, level) if transposed else (level, value)


def _values(name: str, value: Tensor, length: int) -> Tensor:
    _fits(name, value, length)
    value = value.detach().double().contiguous()
    if not _within(value, *_RANGE):
        raise InputError(f"{name} must be finite and above 0, within {_RANGE}: pass scores through kernels.floored")
    return value


def _not_negative(name: str, numbers: Tensor, length: int) -> Tensor:
    _fits(name, numbers, length)
    numbers = numbers.detach().double().contiguous()
    if not _within(numbers, 0.0, torch.inf):
        raise InputError(f"{name} must be at least 0 in every row: look for NaN or a negative number in it")
    return numbers


def _within(numbers: Tensor, low: float, high: float) -> bool:
    """Return whether all numbers are between low and high; False if one is NaN."""
    if not numbers.numel():
        return True
    least, most = numbers.aminmax()
    return bool(low <= least) and bool(most <= high)
