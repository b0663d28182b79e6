"""The hot loops as Triton kernels, for CUDA devices: aggregation over a pattern (or its transpose), edge softmax.

A row is summed by one program, a few edges at a time and in their order, so results are the same bits in every run.
They are tested in Triton's interpreter against `twin`; their speed was never measured (docs/devices.md).
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from isthmus.kernels.csr import Csr, Scores, Weights

WIDEST = 128  # features of a row that one program sums
DEVICES = ("cuda",)
_HALVES = (torch.bfloat16, torch.float16)


@cache
def is_here() -> bool:
    """Return whether triton is installed; torch for CUDA brings it along."""
    return find_spec("triton") is not None


def runs(x: Tensor) -> bool:
    """Return whether these kernels run where x is."""
    return x.device.type in DEVICES and x.is_floating_point() and is_here()


def aggregate(csr: Csr, x: Tensor, weights: Weights, out: Tensor, accumulate: bool) -> None:
    """Compute `ops.aggregate`; that of the transpose is the same over the transposed pattern."""
    from isthmus.kernels import triton_loops as loops

    width = x.shape[1]
    if not csr.num_rows or not width:
        return
    block = _block(width)
    loops.aggregate[csr.num_rows, _pieces(width, block)](
        (csr.indptr, csr.indices, csr.targets),
        (x, x.stride(0), x if weights.add_self else None),
        (weights.edge, weights.col, weights.row),
        (out, out.stride(0), out if accumulate else None, width),
        WIDE=_wide(x.dtype),
        BLOCK=block,
    )


def attention(csr: Csr, scores: Scores, x: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `ops.attention`."""
    from isthmus.kernels import triton_loops as loops

    target, source, x = scores.target.contiguous(), scores.source.contiguous(), x.contiguous()
    heads, width = target.shape[1], x.shape[1] // target.shape[1]
    alpha, out = x.new_empty(csr.num_edges, heads), x.new_zeros(csr.num_rows, x.shape[1])
    if csr.num_rows and heads:
        wide, block, edges = _wide(x.dtype), _block(width), (csr.indptr, csr.indices)
        loops.softmax[csr.num_rows, heads](edges, (target, source, scores.slope, heads), alpha, WIDE=wide)
        grid = csr.num_rows, heads, _pieces(width, block)
        loops.attend[grid]((*edges, None), alpha, x, out, (heads, width), WIDE=wide, BLOCK=block)
    return out, alpha


def attention_grad(
    csr: Csr, turned: tuple[Csr, Tensor], scores: Scores, x: Tensor, alpha: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `ops.attention_grad`."""
    from isthmus.kernels import triton_loops as loops

    (back, order), x, grad = turned, x.contiguous(), grad.contiguous()
    target, source = scores.target.contiguous(), scores.source.contiguous()
    heads, width = target.shape[1], x.shape[1] // target.shape[1]
    sums = torch.float32 if alpha.dtype in _HALVES else alpha.dtype
    of_score, of_target = alpha.new_empty(alpha.shape, dtype=sums), torch.zeros_like(target)
    of_source, of_x = torch.zeros_like(source), torch.zeros_like(x)
    wide, block = _wide(x.dtype), _block(width)
    if csr.num_rows and heads:
        loops.score_grad[csr.num_rows, heads](
            (csr.indptr, csr.indices),
            (target, source, scores.slope, heads),
            (x, grad, width),
            alpha,
            (of_score, of_target),
            WIDE=wide,
            BLOCK=block,
        )
    if back.num_rows and heads:
        grid, edges = (back.num_rows, heads, _pieces(width, block)), (back.indptr, back.indices, order)
        loops.attend[grid](edges, alpha, grad, of_x, (heads, width), WIDE=wide, BLOCK=block)
        loops.sum_scores[back.num_rows, heads](back.indptr, order, of_score, of_source, heads, WIDE=wide)
    return of_target, of_source, of_x


def _block(width: int) -> int:
    return min(WIDEST, 1 << max(0, width - 1).bit_length())


def _pieces(width: int, block: int) -> int:
    return -(-width // block)


def _wide(dtype: torch.dtype) -> Any:
    """Return the dtype of sums, as Triton names it."""
    import triton.language as tl

    return tl.float64 if dtype == torch.float64 else tl.float32
