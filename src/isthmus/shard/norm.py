"""Weights of the edges in an aggregation, as a scale per source and a scale per target."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from isthmus.errors import InputError


@dataclass(frozen=True)
class Norm:
    """The scales of an aggregation, P = diag(target) (A + [add_self] I) diag(source). None is a scale of one."""

    target: Tensor | None  # [n]
    source: Tensor | None  # [n], of inner nodes
    halo: Tensor | None  # [h], of halo nodes
    add_self: bool
    dtype: torch.dtype
    sums: Tensor | None = None  # target scales of the rows of others that sums are made for (`cover.Sums`)

    @staticmethod
    def of(name: str, degree: Tensor, halo_degree: Tensor, dtype: torch.dtype) -> Norm:
        match name:
            case "gcn":
                inner, halo = ((d + 1).to(dtype).rsqrt() for d in (degree, halo_degree))
                return Norm(inner, inner, halo, True, dtype)
            case "mean":
                degree = degree.to(dtype)  # of weights, if edges have them: it may be a fraction
                return Norm(torch.where(degree > 0, 1 / degree, 1), None, None, False, dtype)
            case "sum":
                return Norm(None, None, None, False, dtype)
        raise InputError(f"unknown norm {name!r}: use gcn, mean or sum")

    def drawn(self, rows: Tensor, scale: Tensor | None) -> Norm:
        """Return the norm for some of the halo nodes (int64 [k]), whose rows count ``scale`` times (float64 [k])."""
        halo = None if self.halo is None else self.halo[rows]
        if scale is not None:
            halo = scale.to(self.dtype) if halo is None else halo * scale.to(self.dtype)
        return replace(self, halo=halo)
