"""The cover cut: of the rows that cut edges need, as few as any exact exchange can send.

A cut edge u → v, u owned by j and v by i, is served either by the row of u, which j scatters to i, or by a partial sum
for v, which j makes of its own rows and i gathers. Each ordered pair of owners needs a vertex cover of its cut edges;
a minimum one sends the fewest rows (König). An edge whose source is not covered is *lent*: its owner j sums it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.kernels import Csr


def halo_cover(halo: Csr, halo_ptr: Sequence[int], lend: Tensor) -> Tensor:
    """Return which halo nodes are covered, bool [h]: their rows are scattered, the edges of the others are lent.

    ``halo`` is the pattern of halo edges, n × h, whose columns ``halo_ptr[q]:halo_ptr[q+1]`` belong to owner q. Of the
    minimum covers one is taken that lends up to ``lend[q]`` edges to q (int64 [P], see `lends`), or if all lend more,
    the fewest.
    """
    by_source, _ = kernels.transpose(halo)
    covered = torch.zeros(halo.num_cols, dtype=torch.bool, device=halo.indices.device)
    for q, (first, last) in enumerate(pairwise(map(int, halo_ptr))):
        ends = by_source.indptr[first : last + 1]
        pattern = Csr(ends - ends[0], by_source.indices[ends[0] : ends[-1]], halo.num_rows)
        covered[first:last] = kernels.vertex_cover(pattern, int(lend[q]))[0]
    return covered


def gathered_targets(halo: Csr, halo_ptr: Sequence[int], covered: Tensor) -> list[Tensor]:
    """Return for every owner the inner nodes whose partial sums it sends: int32, ascending local ids."""
    lent = ~covered[halo.indices.long()]
    rows, columns = halo.edge_rows[lent], halo.indices[lent].long()
    owner = torch.bucketize(columns, torch.tensor(halo_ptr[1:]), right=True)
    return [rows[owner == q].unique().int() for q in range(len(halo_ptr) - 1)]


def lends(loads: Tensor, reader: int) -> Tensor:
    """Return how many edges a reader should lend to each owner so that all sum about equally many, int64 [P].

    ``loads`` int64 [P] are the edges whose target is at each owner. If every pair of them moves a P-th of its
    difference, all become equal.
    """
    return (loads[reader] - loads).clamp_min(0) // len(loads)
