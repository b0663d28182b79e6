"""Products of rows and weights by the native core, with bias and relu in the same pass, and their gradients.

torch leaves float32 products to MKL, which takes twice the time on AMD's processors; relu, its gradient and that of the
bias would each be a pass of their own over all rows, and rows side by side would have to be copied together first. Sums
are float32, over 256 columns (of gradients: 256 rows) at a time, in another order than torch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from isthmus.device import is_host
from isthmus.kernels import twin
from isthmus.kernels.buffers import room
from isthmus.kernels.native import core
from isthmus.kernels.ops import _SUFFIX, _int, _ptr, _rows

_LEAST = 256  # rows from which on it pays


def suits(blocks: Sequence[Tensor], weight: Tensor, half: torch.dtype | None = None) -> bool:
    """Return whether [X_1 | X_2 | …] Wᵀ is computed here: many rows on the host, in float32, or bf16 if asked."""
    dtypes = (torch.float32,) if half is None else (torch.float32, torch.bfloat16)
    plain = all(block.dtype in dtypes and is_host(block.device) for block in blocks) and is_host(weight.device)
    known = half is None or (half is torch.bfloat16 and _has_bf16())
    many = len(blocks[0]) >= _LEAST and not torch.is_autocast_enabled("cpu")
    return plain and known and many and weight.dtype == torch.float32


@cache
def _has_bf16() -> bool:
    """Return whether the core multiplies in bf16 here. With matrix instructions (AMX) torch's own are faster."""
    lib = core()
    told: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return lib is not None and bool(lib.has_bf16_products()) and not told.get("amx_bf16")


def product(
    blocks: Sequence[Tensor],
    weight: Tensor,
    bias: Tensor | None = None,
    relu: bool = False,
    half: torch.dtype | None = None,
) -> Tensor:
    """Return [X_1 | X_2 | …] Wᵀ (+ b), or its positive part, [n, out], in float32 or ``half``.

    Shapes: X_k [n, in_k], weight [out, Σ in_k], bias [out]. In bf16 operands, results and gradients by rows are
    rounded; those by weights are not.
    """
    two = list(blocks) if len(blocks) < 3 else [torch.cat(list(blocks), dim=1)]
    return _Product.apply(weight, bias, relu, half, *two)


def _times(blocks: Sequence[Tensor], weight: Tensor, bias: Tensor | None = None, relu: bool = False) -> Tensor:
    """Return [X_1 | X_2] Wᵀ (+ b), relu of it if asked. Any strides of the weight [out, in]."""
    lib, blocks = core(), [_rows(block) for block in blocks]
    out = room((len(blocks[0]), len(weight)), weight.dtype)
    if lib is None:
        twin.product(blocks, weight, bias, out, relu)
        return out
    getattr(lib, f"product_{_SUFFIX[weight.dtype]}")(
        *(_int(len(out)), _int(len(weight)), *_two(blocks)),
        *(_ptr(weight), _int(weight.stride(0)), _int(weight.stride(1)), _ptr(bias)),
        *(_ptr(out), _int(out.stride(0)), int(relu), torch.get_num_threads()),
    )
    return out


def _gradients(
    grad: Tensor, passed: Tensor | None, blocks: Sequence[Tensor], of_bias: Tensor | None, masked: Tensor | None
) -> Tensor:
    """Return Gᵀ [X_1 | X_2], [out, in]; G is the gradient, or what of it passed relu.

    Write its column sums, and G, if asked.
    """
    lib, blocks = core(), [_rows(block) for block in blocks]
    if lib is None:
        return twin.product_gradients(grad, passed, blocks, of_bias, masked)
    of_weight = torch.empty(grad.shape[1], sum(block.shape[1] for block in blocks))
    getattr(lib, f"product_grad_{_SUFFIX[grad.dtype]}")(
        *(_int(len(grad)), _int(grad.shape[1]), *_two(blocks), _ptr(grad), _int(grad.stride(0)), _ptr(passed)),
        *(_ptr(of_weight), _ptr(of_bias), _ptr(masked), torch.get_num_threads()),
    )
    return of_weight


def _two(blocks: Sequence[Tensor]) -> list:
    """Return address, width and stride of two blocks, the second of which may be missing."""
    told = [word for x in blocks for word in (_ptr(x), _int(x.shape[1]), _int(x.stride(0)))]
    return told if len(blocks) == 2 else [*told, _ptr(None), _int(0), _int(0)]


class _Product(Function):
    @staticmethod
    def forward(ctx, weight, bias, relu, half, *blocks):
        rows = [block if half is None else block.to(half) for block in blocks]
        weight = weight if half is None else weight.to(half)
        out = _times(rows, weight, None if bias is None else bias.float().contiguous(), relu)
        ctx.save_for_backward(weight, out if relu else None, *rows)
        return out

    @staticmethod
    def backward(ctx, grad):
        (weight, passed, *blocks), (_, needs_bias, _, _, *needs_rows) = ctx.saved_tensors, ctx.needs_input_grad
        grad, of_bias = _rows(grad), torch.empty(grad.shape[1]) if needs_bias else None
        masked = room(grad.shape, grad.dtype) if passed is not None and any(needs_rows) else None
        of_weight = _gradients(grad, passed, blocks, of_bias, masked)
        grad, parts = grad if masked is None else masked, weight.split([block.shape[1] for block in blocks], dim=1)
        of_rows = (_times([grad], part.t()) if needed else None for part, needed in zip(parts, needs_rows, strict=True))
        return of_weight, of_bias, None, None, *of_rows
