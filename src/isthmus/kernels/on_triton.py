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

EDGES = 16  # edges of a row whose columns are loaded at a time
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
        *(csr.indptr, csr.indices, _or(csr.targets, csr.indices), x, x.stride(0)),
        *(_or(weights.edge, x), _or(weights.col, x), _or(weights.row, x), out, out.stride(0), width),
        HAS_TARGETS=csr.targets is not None,
        HAS_EDGE=weights.edge is not None,
        HAS_COL=weights.col is not None,
        HAS_ROW=weights.row is not None,
        ADD_SELF=weights.add_self,
        ACCUMULATE=accumulate,
        WIDE=_wide(x.dtype),
        EDGES=EDGES,
        BLOCK=block,
    )


def attention(csr: Csr, scores: Scores, x: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `ops.attention`."""
    from isthmus.kernels import triton_loops as loops

    target, source, x = scores.target.contiguous(), scores.source.contiguous(), x.contiguous()
    heads, width = target.shape[1], x.shape[1] // target.shape[1]
    alpha, out = x.new_empty(csr.num_edges, heads), x.new_zeros(csr.num_rows, x.shape[1])
    if csr.num_rows and heads:
        about: dict[str, Any] = {"WIDE": _wide(x.dtype), "EDGES": EDGES, "BLOCK": _block(width)}
        edges = csr.indptr, csr.indices
        loops.softmax[csr.num_rows, heads](*edges, target, source, scores.slope, alpha, heads, **_without(about))
        grid = csr.num_rows, heads, _pieces(width, about["BLOCK"])
        loops.attend[grid](*edges, edges[1], alpha, x, out, heads, width, HAS_ORDER=False, **about)
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
    about: dict[str, Any] = {"WIDE": _wide(x.dtype), "EDGES": EDGES, "BLOCK": _block(width)}
    if csr.num_rows and heads:
        loops.score_grad[csr.num_rows, heads](
            *(csr.indptr, csr.indices, target, source, scores.slope, x, alpha, grad, of_score, of_target),
            *(heads, width),
            **about,
        )
    if back.num_rows and heads:
        grid = back.num_rows, heads, _pieces(width, about["BLOCK"])
        loops.attend[grid](back.indptr, back.indices, order, alpha, grad, of_x, heads, width, HAS_ORDER=True, **about)
        loops.sum_scores[back.num_rows, heads](back.indptr, order, of_score, of_source, heads, **_without(about))
    return of_target, of_source, of_x


def _without(about: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in about.items() if name != "BLOCK"}


def _block(width: int) -> int:
    return min(WIDEST, 1 << max(0, width - 1).bit_length())


def _pieces(width: int, block: int) -> int:
    return -(-width // block)


def _or(tensor: Tensor | None, instead: Tensor) -> Tensor:
    """Return a pointer that is never read, in the place of a tensor that is not given."""
    return instead if tensor is None else tensor


def _wide(dtype: torch.dtype) -> Any:
    """Return the dtype of sums, as Triton names it."""
    import triton.language as tl

    return tl.float64 if dtype == torch.float64 else tl.float32
