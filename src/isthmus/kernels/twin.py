"""The kernels in plain torch: the oracle of the native core, and what runs where there is none (or on a GPU).

Written to be read; see `ops` for what each argument means.
"""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.kernels.csr import Csr

GOLDEN = 0x9E3779B97F4A7C15


def aggregate(
    csr: Csr,
    x: Tensor,
    out: Tensor,
    *,
    edge_weight: Tensor | None,
    col_scale: Tensor | None,
    row_scale: Tensor | None,
    add_self: bool,
    accumulate: bool,
) -> None:
    rows, wide = csr.edge_rows, x.to(out.dtype)
    scaled = wide if col_scale is None else wide * col_scale[:, None]
    messages = scaled[csr.indices.long()]
    if edge_weight is not None:
        messages = messages * edge_weight[:, None]
    total = out.new_zeros(csr.num_rows, x.shape[1]).index_add_(0, rows, messages)
    if add_self:
        total += scaled[: csr.num_rows]
    targets = slice(None) if csr.targets is None else csr.targets.long()
    if row_scale is not None:
        total *= row_scale[targets, None]
    out[targets] = out[targets] + total if accumulate else total


def transpose(csr: Csr) -> tuple[Csr, Tensor]:
    order = torch.argsort(csr.indices, stable=True)
    counts = torch.bincount(csr.indices, minlength=csr.num_cols)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Csr(indptr, csr.edge_rows[order].to(torch.int32), csr.num_rows), order


def gather_rows(x: Tensor, rows: Tensor, out: Tensor) -> None:
    torch.index_select(x, 0, rows.long(), out=out)


def scatter_add_rows(out: Tensor, rows: Tensor, values: Tensor) -> None:
    out.index_add_(0, rows.long(), values)


def dropout(x: Tensor, nodes: Tensor, stream: int, threshold: int, scale: float, relu: bool) -> Tensor:
    key = _mix64(_signed(stream) + nodes * _signed(GOLDEN))
    low, high = key & 0xFFFFFFFF, (key >> 32) & 0xFFFFFFFF
    feature = torch.arange(x.shape[1], device=x.device) * (GOLDEN >> 32)
    bits = _mix32((low[:, None] + feature) & 0xFFFFFFFF) ^ high[:, None]
    value = x.clamp_min(0) if relu else x
    return torch.where(bits >= threshold, value * scale, torch.zeros((), dtype=x.dtype, device=x.device))


def kept_positive(out: Tensor, grad: Tensor, scale: float) -> Tensor:
    return torch.where(out > 0, grad * scale, torch.zeros((), dtype=grad.dtype, device=grad.device))


def attention(csr: Csr, target: Tensor, source: Tensor, slope: float, x: Tensor) -> tuple[Tensor, Tensor]:
    rows, cols = csr.edge_rows, csr.indices.long()
    score = torch.nn.functional.leaky_relu(target[rows] + source[cols], slope)
    index = rows[:, None].expand_as(score)
    largest = torch.full_like(target, -torch.inf).scatter_reduce_(0, index, score, "amax")
    weight = (score - largest[rows]).exp()
    alpha = weight / torch.zeros_like(target).index_add_(0, rows, weight)[rows]
    messages = alpha[:, :, None] * x.view(x.shape[0], alpha.shape[1], -1)[cols]
    return x.new_zeros(csr.num_rows, x.shape[1]).index_add_(0, rows, messages.flatten(1)), alpha


def attention_grad(
    csr: Csr, target: Tensor, source: Tensor, slope: float, x: Tensor, alpha: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    rows, cols, heads = csr.edge_rows, csr.indices.long(), alpha.shape[1]
    grad_heads = grad.view(len(grad), heads, -1)[rows]
    grad_alpha = (grad_heads * x.view(len(x), heads, -1)[cols]).sum(-1)
    mean = torch.zeros_like(target).index_add_(0, rows, alpha * grad_alpha)
    leaky = torch.where(target[rows] + source[cols] > 0, x.new_tensor(1.0), x.new_tensor(slope))
    grad_score = alpha * (grad_alpha - mean[rows]) * leaky
    return (
        torch.zeros_like(target).index_add_(0, rows, grad_score),
        torch.zeros_like(source).index_add_(0, cols, grad_score),
        torch.zeros_like(x).index_add_(0, cols, (alpha[:, :, None] * grad_heads).flatten(1)),
    )


def _signed(value: int) -> int:
    """The int64 with the same 64 bits."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _shift(h: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64."""
    return (h >> bits) & ((1 << (64 - bits)) - 1)


def _mix64(h: Tensor) -> Tensor:
    h = (h ^ _shift(h, 30)) * _signed(0xBF58476D1CE4E5B9)
    h = (h ^ _shift(h, 27)) * _signed(0x94D049BB133111EB)
    return h ^ _shift(h, 31)


def _mix32(h: Tensor) -> Tensor:
    h = ((h ^ (h >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    h = ((h ^ (h >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return h ^ (h >> 16)
