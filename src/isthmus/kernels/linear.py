"""Products of rows and weights, in float32 or in bf16 (two to three times as fast where the processor supports it)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from isthmus.device import is_host, multiplies_bf16_fast
from isthmus.kernels.sparse import SparseMatrix

_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")  # the last is Arm's


@cache
def bf16_is_fast() -> bool:
    """Return whether this processor has instructions for bf16 products; False where torch cannot tell."""
    told: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(told.get(name) for name in _INSTRUCTIONS)


def in_bf16(precision: str, dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether a model of this dtype trains in bf16: asked for, or ``auto`` and its device is fast at it."""
    fast = bf16_is_fast if is_host(device) else partial(multiplies_bf16_fast, device)
    return dtype == torch.float32 and (precision == "bf16" or (precision == "auto" and fast()))


def linear(
    blocks: Tensor | SparseMatrix | tuple[Tensor, ...], weight: Tensor, bias: Tensor | None, bf16: bool
) -> Tensor:
    """Return [X_1 | X_2 | …] Wᵀ (+ b); `LocalGraph.linear` describes the arguments."""
    if isinstance(blocks, SparseMatrix):
        out = blocks @ (weight.bfloat16() if bf16 else weight).t()
        return out if bias is None else out + bias.to(out.dtype)
    blocks = (blocks,) if isinstance(blocks, Tensor) else blocks
    if bf16:
        return product_bf16(blocks, weight, bias)
    first, *others = weight.split([block.shape[1] for block in blocks], dim=1)
    out = functional.linear(blocks[0], first, bias)
    for block, of_block in zip(blocks[1:], others, strict=True):
        out.addmm_(block, of_block.t())
    return out


def product_bf16(blocks: Sequence[Tensor], weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return [X_1 | X_2 | …] Wᵀ (+ b) computed in bf16, [n, out].

    Shapes: X_k [n, in_k] in float32 or bf16, weight [out, Σ in_k], bias [out]. Sums are float32 inside; each result,
    and each gradient by rows or weights, is rounded to bf16 once."""
    return _Product.apply(weight, bias, *blocks)


class _Product(Function):
    @staticmethod
    def forward(ctx, weight, bias, *blocks):
        ctx.widths = [block.shape[1] for block in blocks]
        if len(blocks) == 1:
            rows = blocks[0].bfloat16()
        else:
            rows = torch.empty(len(blocks[0]), sum(ctx.widths), dtype=torch.bfloat16, device=weight.device)
            for place, block in zip(rows.split(ctx.widths, dim=1), blocks, strict=True):
                place.copy_(block)
        ctx.save_for_backward(rows, weight := weight.bfloat16())
        return functional.linear(rows, weight, None if bias is None else bias.bfloat16())

    @staticmethod
    def backward(ctx, grad):
        (rows, weight), (needs_weight, needs_bias, *needs_rows) = ctx.saved_tensors, ctx.needs_input_grad
        of_bias = grad.sum(0) if needs_bias else None  # summed in float32
        of_rows = (grad @ weight).split(ctx.widths, dim=1) if any(needs_rows) else [None] * len(needs_rows)
        of_weight = grad.t() @ rows if needs_weight else None
        return of_weight, of_bias, *(of if needed else None for of, needed in zip(of_rows, needs_rows, strict=True))
