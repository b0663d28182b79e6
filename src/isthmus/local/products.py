"""Rows times weights, in the precision that a recipe has."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from isthmus import kernels
from isthmus.kernels import SparseMatrix


def in_bf16(precision: str, dtype: torch.dtype) -> bool:
    """Whether a model of that dtype trains in bf16: asked for, or ``auto`` and this processor is fast at it."""
    return dtype == torch.float32 and (precision == "bf16" or (precision == "auto" and kernels.bf16_is_fast()))


def linear(
    blocks: Tensor | SparseMatrix | tuple[Tensor, ...], weight: Tensor, bias: Tensor | None, bf16: bool
) -> Tensor:
    """[X_1 | X_2 | …] Wᵀ (+ b): see `LocalGraph.linear`."""
    if isinstance(blocks, SparseMatrix):
        out = blocks @ (weight.bfloat16() if bf16 else weight).t()
        return out if bias is None else out + bias.to(out.dtype)
    blocks = (blocks,) if isinstance(blocks, Tensor) else blocks
    if bf16:
        return kernels.product_bf16(blocks, weight, bias)
    first, *others = weight.split([block.shape[1] for block in blocks], dim=1)
    out = functional.linear(blocks[0], first, bias)
    for block, of_block in zip(blocks[1:], others, strict=True):
        out.addmm_(block, of_block.t())
    return out
