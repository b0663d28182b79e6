"""Products of many float32 rows by oneDNN, which torch brings along but leaves to MKL.

Where MKL is not at home, on AMD's processors, it takes half the time; elsewhere it is as fast. Both sum in float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd import Function

from isthmus.device import is_host

_LEAST = 4096  # rows from which on a product takes longer than to prepare oneDNN for its shape
_AVAILABLE = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def suits(blocks: Sequence[Tensor], weight: Tensor) -> bool:
    """Return whether [X_1 | X_2 | …] Wᵀ is computed here: many float32 rows on the host."""
    plain = all(tensor.dtype == torch.float32 and is_host(tensor.device) for tensor in (*blocks, weight))
    return plain and _AVAILABLE and len(blocks[0]) >= _LEAST and not torch.is_autocast_enabled("cpu")


def product(blocks: Sequence[Tensor], weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return [X_1 | X_2 | …] Wᵀ (+ b), [n, out]. Shapes: X_k [n, in_k], weight [out, Σ in_k], bias [out]."""
    return _Product.apply(weight, bias, *blocks)


def _times(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return X Wᵀ (+ b) for weight [out, in], whatever the strides of both."""
    return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")


class _Product(Function):
    @staticmethod
    def forward(ctx, weight, bias, *blocks):
        ctx.save_for_backward(weight, *blocks)
        parts = weight.split([block.shape[1] for block in blocks], dim=1)
        out = _times(blocks[0], parts[0].contiguous(), bias)
        for block, part in zip(blocks[1:], parts[1:], strict=True):
            out += _times(block, part.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        (weight, *blocks), (needs_weight, needs_bias, *needs_rows) = ctx.saved_tensors, ctx.needs_input_grad
        parts = weight.split([block.shape[1] for block in blocks], dim=1)
        of_rows = (
            _times(grad, part.t().contiguous()) if needed else None
            for part, needed in zip(parts, needs_rows, strict=True)
        )
        of_weight = torch.cat([_times(grad.t(), block.t()) for block in blocks], dim=1) if needs_weight else None
        return of_weight, grad.sum(0) if needs_bias else None, *of_rows
