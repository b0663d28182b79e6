"""Products of float32 rows and weights by the native core, with bias and relu in the same pass, and their gradients.

torch leaves such products to MKL, which takes twice the time on AMD's processors; and relu, its gradient and that of
the bias would each be a pass of their own over all rows. Sums are float32, over 256 columns (of gradients:
128 rows) at a time, in another order than torch's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd import Function

from isthmus.device import is_host
from isthmus.kernels import twin
from isthmus.kernels.buffers import room
from isthmus.kernels.native import core
from isthmus.kernels.ops import _int, _ptr, _rows

_LEAST = 256  # rows from which on it pays


def suits(blocks: Sequence[Tensor], weight: Tensor) -> bool:
    """Return whether [X_1 | X_2 | …] Wᵀ is computed here: many float32 rows on the host."""
    plain = all(tensor.dtype == torch.float32 and is_host(tensor.device) for tensor in (*blocks, weight))
    return plain and len(blocks[0]) >= _LEAST and not torch.is_autocast_enabled("cpu")


def product(blocks: Sequence[Tensor], weight: Tensor, bias: Tensor | None = None, relu: bool = False) -> Tensor:
    """Return [X_1 | X_2 | …] Wᵀ (+ b), or its positive part, [n, out].

    Shapes: X_k [n, in_k], weight [out, Σ in_k], bias [out].
    """
    return _Product.apply(weight, bias, relu, *blocks)


def _times(rows: Tensor, weight: Tensor, bias: Tensor | None = None, out: Tensor | None = None, relu: bool = False):
    """Return X Wᵀ (+ b), relu of it if asked; add it to ``out``, if given. Any strides of the weight [out, in]."""
    lib, rows = core(), _rows(rows)
    added, out = out is not None, room((len(rows), len(weight)), rows.dtype) if out is None else out
    if lib is None:
        twin.product(rows, weight, bias, out, added, relu)
        return out
    lib.product_f32(
        *(_int(len(rows)), _int(rows.shape[1]), _int(len(weight)), _ptr(rows), _int(rows.stride(0))),
        *(_ptr(weight), _int(weight.stride(0)), _int(weight.stride(1)), _ptr(bias)),
        *(_ptr(out), _int(out.stride(0)), int(added), int(relu), torch.get_num_threads()),
    )
    return out


def _gradients(grad: Tensor, passed: Tensor | None, rows: Tensor, of_bias: Tensor | None, masked: Tensor | None):
    """Return Gᵀ X, [out, in]; G is the gradient, or what of it passed relu. Write its column sums, and G, if asked."""
    lib, rows = core(), _rows(rows)
    if lib is None:
        return twin.product_gradients(grad, passed, rows, of_bias, masked)
    of_weight = rows.new_empty(grad.shape[1], rows.shape[1])
    lib.product_grad_f32(
        *(_int(len(rows)), _int(rows.shape[1]), _int(grad.shape[1]), _ptr(grad), _int(grad.stride(0)), _ptr(passed)),
        *(_ptr(rows), _int(rows.stride(0)), _ptr(of_weight), _ptr(of_bias), _ptr(masked), torch.get_num_threads()),
    )
    return of_weight


class _Product(Function):
    @staticmethod
    def forward(ctx, weight, bias, relu, *blocks):
        out, last = None, len(blocks) - 1
        bias = None if bias is None else bias.contiguous()
        for k, (block, part) in enumerate(zip(blocks, _parts(weight, blocks), strict=True)):
            out = _times(block, part, bias if k == 0 else None, out, relu and k == last)
        ctx.save_for_backward(weight, out if relu else None, *blocks)
        return out

    @staticmethod
    def backward(ctx, grad):
        (weight, passed, *blocks), (_, needs_bias, _, *needs_rows) = ctx.saved_tensors, ctx.needs_input_grad
        grad, of_bias = _rows(grad), grad.new_empty(grad.shape[1]) if needs_bias else None
        again = passed is not None and (any(needs_rows) or len(blocks) > 1)
        masked = room(grad.shape, grad.dtype) if again else None
        of_weight = [_gradients(grad, passed, blocks[0], of_bias, masked)]
        grad = grad if masked is None else masked
        of_weight += [_gradients(grad, None, block, None, None) for block in blocks[1:]]
        of_rows = (
            _times(grad, part.t()) if needed else None
            for part, needed in zip(_parts(weight, blocks), needs_rows, strict=True)
        )
        return of_weight[0] if len(blocks) == 1 else torch.cat(of_weight, dim=1), of_bias, None, *of_rows


def _parts(weight: Tensor, blocks: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the columns of a weight that belong to each block."""
    return weight.split([block.shape[1] for block in blocks], dim=1)
