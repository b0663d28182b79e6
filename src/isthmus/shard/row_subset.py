"""A shard whose edges lead to some of the rows only."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.kernels import Csr
from isthmus.shard.drawn import Pattern
from isthmus.shard.needed_rows import NeededRows
from isthmus.shard.norm import Norm
from isthmus.shard.shard import Shard


class RowSubset(Shard):
    """The m of an aggregation's n rows that are needed: m × n inner edges, m × h halo edges, the same links.

    Self loops are ordinary edges here, since row r of the result is not row r of the input. With ``needed``, halo nodes
    that none of the rows reads are left out and do not cross.
    """

    def __init__(
        self,
        edges: Shard,
        rows: Tensor,
        with_self: bool,
        like: RowSubset | None = None,
        needed: NeededRows | None = None,
        thinned: Pattern | None = None,
    ):
        """Take the edges to ``rows`` (int64 [m]).

        ``like``: another subset with the same inner edges, which are then shared. ``thinned`` [m, n]: inner edges to
        use instead of the graph's.
        """
        if like:
            inner = Pattern(like.inner)
        else:
            inner = _looped(thinned or taken(edges.inner, edges.inner_weight, rows), rows if with_self else None)
        halo = taken(edges.halo, edges.halo_weight, rows)
        self.rows, self._of, self._about = rows, edges, (with_self, needed, thinned)
        self._kept = None if needed is None else needed.halo_of(edges)
        super().__init__(
            inner=inner.csr,
            halo=halo.csr if self._kept is None else _renumbered(halo.csr, self._kept),
            links=edges.links if needed is None else needed.links_of(edges),
            nodes=edges.all_nodes if self._kept is None else edges.all_nodes.with_halo(self._kept),
            symmetric=False,
        )
        if like:
            self.inner_weight = like.inner_weight
            self.inner_out, self.inner_out_weight = like.inner_out, like.inner_out_weight
        elif inner.weight is not None:
            turned, self.inner_weight = inner.turned(), inner.weight
            self.inner_out, self.inner_out_weight = turned.csr, turned.weight
        if halo.weight is not None:
            turned, self.halo_weight = Pattern(self.halo, halo.weight).turned(), halo.weight
            self.halo_out, self.halo_out_weight = turned.csr, turned.weight

    def is_of(self, edges: Shard, rows: Tensor, *about: object) -> bool:
        """Return whether it was made from exactly these objects (``about``: `with_self`, `needed`, `thinned`)."""
        return edges is self._of and rows is self.rows and all(a is b for a, b in zip(about, self._about, strict=True))

    def norm(self, name: str, dtype: torch.dtype) -> Norm:
        if (name, dtype) not in self._norms:
            norm = self._of.norm(name, dtype)
            target = None if norm.target is None else norm.target[self.rows]
            halo = norm.halo if norm.halo is None or self._kept is None else norm.halo[self._kept]
            self._norms[name, dtype] = replace(norm, target=target, halo=halo, add_self=False)
        return self._norms[name, dtype]


def _renumbered(csr: Csr, kept: Tensor) -> Csr:
    """Return the pattern with new numbers for the kept columns; it has no edges from others."""
    number = kept.cumsum(0, dtype=torch.int32) - 1
    return Csr(csr.indptr, number[csr.indices.long()], int(kept.sum()))


def taken(csr: Csr, weight: Tensor | None, rows: Tensor) -> Pattern:
    """Return some rows of a pattern."""
    if weight is None:
        return Pattern(kernels.select_rows(csr, rows.to(torch.int32)))
    parted, at = csr.take(rows)
    return Pattern(parted, weight[at])


def _looped(pattern: Pattern, rows: Tensor | None) -> Pattern:
    """Return the pattern with a self loop of weight one in front of each row; unchanged if rows is None."""
    if rows is None:
        return pattern
    looped = pattern.csr.after(rows)
    if pattern.weight is None:
        return Pattern(looped)
    weights = pattern.weight.new_ones(looped.num_edges)
    loops = torch.zeros(looped.num_edges, dtype=torch.bool, device=rows.device)
    loops[looped.indptr[:-1]] = True
    weights[~loops] = pattern.weight
    return Pattern(looped, weights)
