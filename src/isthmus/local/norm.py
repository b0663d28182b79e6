"""How an aggregation weighs its edges, as a scale per source and a scale per target."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.errors import InputError


@dataclass(frozen=True)
class Norm:
    """P = diag(target) (A + [add_self] I) diag(source). None is a scale of one."""

    target: Tensor | None  # [n]
    source: Tensor | None  # [n], of inner nodes
    halo: Tensor | None  # [h], of halo nodes
    add_self: bool

    @staticmethod
    def of(name: str, degree: Tensor, halo_degree: Tensor, dtype: torch.dtype) -> Norm:
        match name:
            case "gcn":
                inner, halo = ((d.to(dtype) + 1).rsqrt() for d in (degree, halo_degree))
                return Norm(inner, inner, halo, add_self=True)
            case "mean":
                return Norm(1 / degree.to(dtype).clamp_min(1), None, None, add_self=False)
            case "sum":
                return Norm(None, None, None, add_self=False)
        raise InputError(f"unknown norm {name!r}: use gcn, mean or sum")
