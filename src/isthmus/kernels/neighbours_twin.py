"""The draws of `kernels.neighbours` in plain torch: the reference for the native core, and what runs without it."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.kernels.csr import Csr, Spans
from isthmus.kernels.twin import GOLDEN, _mix64, _shift, _signed

_LN2 = 762123384786  # in units of 2^-40
_TAIL = (536870912, 134217667, 44741658, 16740222, 6998536, 1507892, 4734038, -5550563, 6662813, -3793120, 1131063)


def draw_uniform(stream: int, spans: Spans, indptr: Tensor, replace: bool) -> Tensor:
    """Return the numbers of the edges drawn, int64 [e]."""
    begin, degree, ids = spans
    size, keys = indptr.diff(), key_of(_signed(stream), ids)
    places = torch.arange(int(indptr[-1]), device=indptr.device) - torch.repeat_interleave(indptr[:-1], size)
    draws = torch.ones_like(degree, dtype=torch.bool) if replace else size < degree
    most = int(size[draws].max()) if bool(draws.any()) else 0
    at, d, k, key = (tensor[draws] for tensor in (indptr[:-1], degree, size, keys))
    for i in range(most):
        more = k > i
        bound = d[more] if replace else d[more] - k[more] + i + 1
        place, first = _below(key_of(key[more], torch.tensor(i)), bound), at[more]
        if not replace:
            earlier = places[first[:, None] + torch.arange(i)]
            place = torch.where((earlier == place[:, None]).any(1), bound - 1, place)
        places[first + i] = place
    return places + torch.repeat_interleave(begin, size)


def count_weighted(spans: Spans, weight: Tensor) -> Tensor:
    rows, edges = _edges_of(spans)
    return torch.zeros_like(spans.degree).index_add_(0, rows, (weight[edges] > 0).long())


def draw_by_weight(stream: int, spans: Spans, weight: Tensor, indptr: Tensor, replace: bool) -> tuple[Tensor, Tensor]:
    """Return the numbers of the edges drawn, and each row's first key that was not (scaled by 2^40)."""
    rows, edges = _edges_of(spans)
    place, w, size = edges - spans.begin[rows], weight[edges].double(), indptr.diff()
    key = key_of(_signed(stream), spans.ids)
    if not replace:
        race, order = _race(key, rows, place, w)
        rank = torch.arange(len(order)) - _first_of(spans)[rows]
        threshold = torch.full((len(size),), torch.inf, dtype=torch.float64)
        next_one = rank == size[rows]
        threshold[rows[next_one]] = race[order][next_one]
        return edges[order][rank < size[rows]], threshold
    drawn = torch.empty(int(indptr[-1]), dtype=torch.int64)
    for i in range(int(size.max()) if len(size) else 0):
        _, order = _race(key_of(key, torch.tensor(i)), rows, place, w)
        more = size > i
        drawn[indptr[:-1][more] + i] = edges[order][_first_of(spans)[more]]
    return drawn, torch.empty(0)


def draw_labor(stream: int, indices: Tensor, spans: Spans, names: Tensor | None, fanout: int) -> tuple[Tensor, Tensor]:
    rows, edges = _edges_of(spans)
    source, degree = indices[edges].long(), spans.degree[rows]
    variate = _shift(key_of(_signed(stream), source if names is None else names[source]), 32)
    kept = (degree <= fanout) | (variate * degree < fanout << 32)
    counts = torch.zeros_like(spans.degree).index_add_(0, rows, kept.long())
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]), edges[kept]


def number_nodes(met: Tensor, base: int, table: Tensor, nodes: Tensor, known: int) -> tuple[Tensor, int]:
    at = met.long()
    numbers = (table[at].long() & 0xFFFFFFFF) - base
    fresh, inverse = at[numbers < 0].unique(return_inverse=True)
    first = torch.full_like(fresh, len(inverse)).scatter_reduce_(0, inverse, torch.arange(len(inverse)), "amin")
    fresh = fresh[first.argsort()]
    nodes[known : known + len(fresh)] = fresh.to(nodes.dtype)
    table[fresh] = (base + known + torch.arange(len(fresh))).to(torch.int32)
    return ((table[at].long() & 0xFFFFFFFF) - base).to(torch.int32), known + len(fresh)


def sort_rows(csr: Csr, names: Tensor | None) -> tuple[Csr, Tensor]:
    by_name = torch.argsort(csr.indices if names is None else names[csr.indices.long()], stable=True)
    order = by_name[torch.argsort(csr.edge_rows[by_name], stable=True)]
    return Csr(csr.indptr, csr.indices[order], csr.num_cols), order


def key_of(stream: int | Tensor, at: Tensor) -> Tensor:
    return _mix64(stream + at * _signed(GOLDEN))


def exponential(bits: Tensor) -> Tensor:
    """Return exponential variates made of 64 random bits each, in units of 2^-40, int64."""
    low, high = bits & 0xFFFFFFFF, _shift(bits, 32)
    lowest = torch.where(low == 0, 1 << 32, low & -low)
    halvings = lowest.double().frexp().exponent.long() - 1  # exact: powers of two
    tail = torch.full_like(high, _TAIL[-1])
    for coefficient in _TAIL[-2::-1]:
        tail = coefficient + ((tail * (high >> 1)) >> 31)
    return halvings * _LN2 + (((2 * high + 1) * tail) >> 23)


def _race(key: Tensor, rows: Tensor, place: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the key of every edge, and the edges ordered by (row, key, place); those of weight 0 come last."""
    race = exponential(key_of(key[rows], place)).double() / weight
    race = torch.where(weight > 0, race, torch.inf)
    by_key = race.argsort(stable=True)
    return race, by_key[rows[by_key].argsort(stable=True)]


def _edges_of(spans: Spans) -> tuple[Tensor, Tensor]:
    """Return the row and the number of every edge of the spans, row by row."""
    rows = torch.repeat_interleave(torch.arange(len(spans.degree)), spans.degree)
    return rows, torch.arange(len(rows)) - _first_of(spans)[rows] + spans.begin[rows]


def _first_of(spans: Spans) -> Tensor:
    """Return where the edges of each span begin in the list of all."""
    return spans.degree.cumsum(0) - spans.degree


def _below(bits: Tensor, bound: Tensor) -> Tensor:
    """Return floor(bits / 2^64 · bound) for 64 unsigned bits and bounds below 2^31."""
    high, low = _shift(bits, 32), bits & 0xFFFFFFFF
    return (high * bound + _shift(low * bound, 32)) >> 32
