"""Products of rows and weights, in float32 or in half of its bits (two to three times as fast where there are
instructions for it): bf16 or fp16."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from isthmus.device import is_host, multiplies_fast
from isthmus.errors import InputError
from isthmus.kernels import host_rows, onednn
from isthmus.kernels.host_rows import HostRows
from isthmus.kernels.sparse import SparseMatrix

_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")  # the last is Arm's


@cache
def bf16_is_fast() -> bool:
    """Return whether this processor has instructions for bf16 products; False where torch cannot tell."""
    told: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(told.get(name) for name in _INSTRUCTIONS)


def half_of(precision: str, dtype: torch.dtype, device: torch.device) -> torch.dtype | None:
    """Return the dtype in which a model of this dtype trains on a device, if not its own.

    ``auto`` is bf16 where the device is fast at it; a model in float64 stays what it is.
    """
    if precision == "fp16":
        if is_host(device) or not multiplies_fast(device, torch.float16):
            raise InputError(f"{device} has no fp16 products: take precision=bf16, or auto")
        if dtype != torch.float32:
            raise InputError("fp16 products are summed in float32: use --dtype float32, or leave precision out")
        return torch.float16
    fast = bf16_is_fast() if is_host(device) else multiplies_fast(device, torch.bfloat16)
    return (
        torch.bfloat16 if dtype == torch.float32 and (precision == "bf16" or (precision == "auto" and fast)) else None
    )


def linear(
    blocks: Tensor | SparseMatrix | HostRows | tuple[Tensor | HostRows, ...],
    weight: Tensor,
    bias: Tensor | None,
    half: torch.dtype | None,
) -> Tensor:
    """Return [X_1 | X_2 | …] Wᵀ (+ b); `LocalGraph.linear` describes the arguments."""
    if isinstance(blocks, SparseMatrix):
        out = blocks @ weight.to(half or weight.dtype).t()
        return out if bias is None else out + bias.to(out.dtype)
    blocks = blocks if isinstance(blocks, tuple) else (blocks,)
    here = [block for block in blocks if isinstance(block, Tensor)]
    if len(here) < len(blocks):
        return host_rows.product([block for block in blocks if isinstance(block, HostRows)], weight, bias, half)
    if half is not None:
        return half_product(here, weight, bias, half)
    if onednn.suits(here, weight):
        return onednn.product(here, weight, bias)
    first, *others = weight.split([block.shape[1] for block in here], dim=1)
    out = functional.linear(here[0], first, bias)
    for block, of_block in zip(here[1:], others, strict=True):
        out.addmm_(block, of_block.t())
    return out


def half_product(
    blocks: Sequence[Tensor], weight: Tensor, bias: Tensor | None = None, half: torch.dtype = torch.bfloat16
) -> Tensor:
    """Return [X_1 | X_2 | …] Wᵀ (+ b) computed in bf16 or fp16, [n, out].

    Shapes: X_k [n, in_k] in float32 or ``half``, weight [out, Σ in_k], bias [out]. Sums are float32 inside; each
    result, and each gradient by rows or weights, is rounded to ``half`` once."""
    return _Product.apply(weight, bias, half, *blocks)


class _Product(Function):
    @staticmethod
    def forward(ctx, weight, bias, half, *blocks):
        ctx.widths = [block.shape[1] for block in blocks]
        if len(blocks) == 1:
            rows = blocks[0].to(half)
        else:
            rows = torch.empty(len(blocks[0]), sum(ctx.widths), dtype=half, device=weight.device)
            for place, block in zip(rows.split(ctx.widths, dim=1), blocks, strict=True):
                place.copy_(block)
        ctx.save_for_backward(rows, weight := weight.to(half))
        return functional.linear(rows, weight, None if bias is None else bias.to(half))

    @staticmethod
    def backward(ctx, grad):
        (rows, weight), (needs_weight, needs_bias, _, *needs_rows) = ctx.saved_tensors, ctx.needs_input_grad
        of_bias = grad.sum(0) if needs_bias else None  # summed in float32
        of_rows = (grad @ weight).split(ctx.widths, dim=1) if any(needs_rows) else [None] * len(needs_rows)
        of_weight = grad.t() @ rows if needs_weight else None
        of_blocks = (of if needed else None for of, needed in zip(of_rows, needs_rows, strict=True))
        return of_weight, of_bias, None, *of_blocks
