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
from isthmus.kernels import host_rows, products
from isthmus.kernels.buffers import room
from isthmus.kernels.host_rows import HostRows
from isthmus.kernels.ops import kept_positive
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
    relu: bool = False,
) -> Tensor:
    """Return [X_1 | X_2 | …] Wᵀ (+ b), relu of it if asked; `LocalGraph.linear` describes the arguments."""
    if isinstance(blocks, SparseMatrix):
        out = blocks @ weight.to(half or weight.dtype).t()
        out = out if bias is None else out + bias.to(out.dtype)
        return out.relu() if relu else out
    blocks = blocks if isinstance(blocks, tuple) else (blocks,)
    here = [block for block in blocks if isinstance(block, Tensor)]
    if len(here) < len(blocks):
        out = host_rows.product([block for block in blocks if isinstance(block, HostRows)], weight, bias, half)
        return out.relu() if relu else out
    if products.suits(here, weight, half):
        return products.product(here, weight, bias, relu, half)
    if half is not None:
        return half_product(here, weight, bias, half, relu)
    first, *others = weight.split([block.shape[1] for block in here], dim=1)
    out = functional.linear(here[0], first, bias)
    for block, of_block in zip(here[1:], others, strict=True):
        out.addmm_(block, of_block.t())
    return out.relu_() if relu else out


def half_product(
    blocks: Sequence[Tensor],
    weight: Tensor,
    bias: Tensor | None = None,
    half: torch.dtype = torch.bfloat16,
    relu: bool = False,
) -> Tensor:
    """Return [X_1 | X_2 | …] Wᵀ (+ b), or its positive part, computed in bf16 or fp16, [n, out].

    Shapes: X_k [n, in_k] in float32 or ``half``, weight [out, Σ in_k], bias [out]. Sums are float32 inside; each
    result, and each gradient by rows or weights, is rounded to ``half`` once."""
    return _Product.apply(weight, bias, half, relu, *blocks)


class _Product(Function):
    @staticmethod
    def forward(ctx, weight, bias, half, relu, *blocks):
        ctx.widths = [block.shape[1] for block in blocks]
        if len(blocks) == 1:
            rows = blocks[0].to(half)
        else:
            rows = torch.empty(len(blocks[0]), sum(ctx.widths), dtype=half, device=weight.device)
            for place, block in zip(rows.split(ctx.widths, dim=1), blocks, strict=True):
                place.copy_(block)
        weight = weight.to(half)
        out = _into_room(rows, weight.t(), None if bias is None else bias.to(half))
        ctx.save_for_backward(rows, weight, out.relu_() if relu else None)
        return out

    @staticmethod
    def backward(ctx, grad):
        (rows, weight, passed), (needs_weight, needs_bias, _, _, *needs_rows) = ctx.saved_tensors, ctx.needs_input_grad
        grad = grad if passed is None else kept_positive(passed, grad, 1.0)
        of_bias = grad.sum(0) if needs_bias else None  # summed in float32
        of_rows = _into_room(grad, weight).split(ctx.widths, dim=1) if any(needs_rows) else [None] * len(needs_rows)
        of_weight = grad.t() @ rows if needs_weight else None
        of_blocks = (of if needed else None for of, needed in zip(of_rows, needs_rows, strict=True))
        return of_weight, of_bias, None, None, *of_blocks


def _into_room(rows: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return rows times a matrix (+ bias), on the host in memory of one of few sizes."""
    shape = (len(rows), right.shape[1])
    out = room(shape, rows.dtype) if is_host(rows.device) else rows.new_empty(shape)
    return torch.mm(rows, right, out=out) if bias is None else torch.addmm(bias, rows, right, out=out)
