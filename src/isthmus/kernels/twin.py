"""The kernels in plain torch: the reference for the native core, and what runs without it or on an accelerator.

Written to be read; `ops` describes the arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from isthmus.device import is_host
from isthmus.kernels.csr import Csr, Scores, Weights
from isthmus.kernels.memory import Memory

GOLDEN = 0x9E3779B97F4A7C15


def aggregate(csr: Csr, x: Tensor, weights: Weights, out: Tensor, accumulate: bool) -> None:
    rows, wide = csr.edge_rows, x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    scaled = wide if weights.col is None else wide * weights.col[:, None]
    edges = slice(None)
    if len(rows) != csr.num_edges:  # some rows of a larger pattern, whose columns lie in the middle of its own
        begin = int(csr.indptr[0])
        edges = slice(begin, begin + len(rows))
    messages = scaled[csr.indices[edges].long()]
    if weights.edge is not None:
        messages = messages * weights.edge[edges, None]
    total = wide.new_zeros(csr.num_rows, x.shape[1]).index_add_(0, rows, messages)
    store(csr, total, scaled, weights, out, accumulate)


def product(blocks: Sequence[Tensor], weight: Tensor, bias: Tensor | None, out: Tensor, relu: bool) -> None:
    total = torch.cat(list(blocks), dim=1) @ weight.t()
    total = total if bias is None else total + bias
    out.copy_(total.relu() if relu else total)


def product_gradients(
    grad: Tensor, passed: Tensor | None, blocks: Sequence[Tensor], of_bias: Tensor | None, masked: Tensor | None
) -> Tensor:
    grad = grad if passed is None else torch.where(passed > 0, grad, 0)
    for out, value in ((of_bias, grad.sum(0)), (masked, grad)):
        if out is not None:
            out.copy_(value)
    return grad.t() @ torch.cat(list(blocks), dim=1)


def store(csr: Csr, total: Tensor, scaled: Tensor, weights: Weights, out: Tensor, accumulate: bool) -> None:
    """Add the rows' own to the sums over their edges, scale them, and put them where they belong."""
    if weights.add_self:
        total += scaled[: csr.num_rows]
    targets = slice(None) if csr.targets is None else csr.targets.long()
    if weights.row is not None:
        total *= weights.row[targets, None]
    out[targets] = (out[targets] + total if accumulate else total).to(out.dtype)


def transpose(csr: Csr) -> tuple[Csr, Tensor]:
    order = torch.argsort(csr.indices, stable=True)
    counts = torch.bincount(csr.indices, minlength=csr.num_cols)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Csr(indptr, csr.edge_rows[order].to(torch.int32), csr.num_rows), order


def gather_rows(x: Tensor, rows: Tensor, out: Tensor) -> None:
    if out.dtype == x.dtype:
        torch.index_select(x, 0, rows.long(), out=out)
    else:
        out.copy_(x[rows.long()])


def gather_held(x: Tensor, nodes: Tensor, first: int, out: Tensor) -> Tensor:
    held = (nodes >= first) & (nodes < first + len(x))
    out[held] = x[nodes[held] - first].to(out.dtype)
    return (~held).nonzero().flatten()


def scatter_add_rows(out: Tensor, rows: Tensor, values: Tensor) -> None:
    out.index_add_(0, rows.long(), values)


def dropout(x: Tensor, nodes: Tensor, stream: int, threshold: int, scale: float, relu: bool) -> Tensor:
    bits = _feature_bits(_mix64(_signed(stream) + nodes * _signed(GOLDEN)), x.shape[1])
    value = x.clamp_min(0) if relu else x
    return torch.where(bits >= threshold, value * scale, torch.zeros((), dtype=x.dtype, device=x.device))


def dropout_stored(csr: Csr, values: Tensor, nodes: Tensor, stream: int, threshold: int, scale: float) -> Tensor:
    key = _mix64(_signed(stream) + nodes * _signed(GOLDEN))[csr.edge_rows]
    bits = _bits_of(key, csr.indices.long())
    return torch.where(bits >= threshold, values * scale, torch.zeros((), dtype=values.dtype, device=values.device))


def kept_positive(out: Tensor, grad: Tensor, scale: float) -> Tensor:
    return torch.where(out > 0, grad * scale, torch.zeros((), dtype=grad.dtype, device=grad.device))


def both_positive(out: Tensor, grad: Tensor, scale: float, before: Tensor, also: Tensor) -> Tensor:
    sums = torch.float64 if grad.dtype == torch.float64 else torch.float32
    return (kept_positive(out, grad.to(sums), scale) + kept_positive(before, also.to(sums), 1.0)).to(grad.dtype)


def attention(csr: Csr, scores: Scores, x: Tensor) -> tuple[Tensor, Tensor]:
    (target, source, slope), rows, cols = scores, csr.edge_rows, csr.indices.long()
    score = torch.nn.functional.leaky_relu(target[rows] + source[cols], slope)
    index = rows[:, None].expand_as(score)
    largest = torch.full_like(target, -torch.inf).scatter_reduce_(0, index, score, "amax")
    weight = (score - largest[rows]).exp()
    alpha = weight / torch.zeros_like(target).index_add_(0, rows, weight)[rows]
    messages = alpha[:, :, None] * x.unflatten(1, (alpha.shape[1], -1))[cols]
    return x.new_zeros(csr.num_rows, x.shape[1]).index_add_(0, rows, messages.flatten(1)), alpha


def attention_grad(csr: Csr, scores: Scores, x: Tensor, alpha: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    target, source, slope = scores
    rows, cols, heads = csr.edge_rows, csr.indices.long(), alpha.shape[1]
    grad_heads = grad.unflatten(1, (heads, -1))[rows]
    grad_alpha = (grad_heads * x.unflatten(1, (heads, -1))[cols]).sum(-1)
    mean = torch.zeros_like(target).index_add_(0, rows, alpha * grad_alpha)
    above = target[rows] + source[cols] > 0
    leaky = torch.full_like(alpha, slope).masked_fill_(above, 1.0)
    grad_score = alpha * (grad_alpha - mean[rows]) * leaky
    return (
        torch.zeros_like(target).index_add_(0, rows, grad_score),
        torch.zeros_like(source).index_add_(0, cols, grad_score),
        torch.zeros_like(x).index_add_(0, cols, (alpha[:, :, None] * grad_heads).flatten(1)),
    )


def column_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    if not len(x):
        return x.new_zeros(x.shape[1], dtype=torch.float64), x.new_zeros(x.shape[1], dtype=torch.float64)
    if is_host(x.device):  # torch.var_mean takes a hundred times longer down the columns
        mean, variance = torch.batch_norm_update_stats(x.contiguous(), None, None, 0.0)
    else:
        variance, mean = torch.var_mean(x, 0, correction=0)
    return mean.double(), variance.double() * len(x)


def merge_moments(every: Tensor) -> Tensor:
    width = every.shape[2] // 2
    numbers, means, squares = every.split([1, width, width], dim=2)
    number = numbers.sum(0)
    mean = (means * (numbers / number.clamp_min(1))).sum(0)
    squares = (squares + numbers * (means - mean).square()).sum(0)
    return torch.cat([number, mean, squares / number.clamp_min(1)], dim=1)


def norm_grad_sums(x: Tensor, grad: Tensor, mean: Tensor) -> Tensor:
    return torch.stack([grad.sum(0), (grad * (x - mean)).sum(0)]).double()


def norm_grad(x: Tensor, grad: Tensor, columns: Tensor) -> Tensor:
    mean, by_grad, by_row, add = columns
    return torch.addcmul(add, x - mean, by_row).addcmul_(grad, by_grad)


def draw_rows(stream: int, count: int, size: int, device: torch.device) -> Tensor:
    key = _mix64(_signed(stream) + torch.arange(count, device=device) * _signed(GOLDEN))
    unsigned_order = (key ^ _signed(1 << 63)).argsort(stable=True)
    return unsigned_order[:size].sort().values.to(torch.int32)


def draw_edges(stream: int, csr: Csr, row_ids: Tensor, col_ids: Tensor, p: float | Tensor, symmetric: bool) -> Tensor:
    a, b = row_ids[csr.edge_rows], col_ids[csr.indices.long()]
    if symmetric:
        a, b = torch.minimum(a, b), torch.maximum(a, b)
    key = _mix64(_mix64(_signed(stream) + a * _signed(GOLDEN)) + b * _signed(GOLDEN))
    return _shift(key, 32).double() < (p.double() if isinstance(p, Tensor) else p) * 2.0**32


def select_rows(csr: Csr, begin: Tensor, indptr: Tensor) -> Tensor:
    """Return the columns of rows whose edges start at `begin` and whose lengths `indptr` gives."""
    shift = torch.repeat_interleave(begin - indptr[:-1], indptr.diff())
    return csr.indices[torch.arange(len(shift), device=shift.device) + shift]


def select_edges(csr: Csr, keep: Tensor, columns: Tensor | None, num_cols: int | None) -> tuple[Csr, Tensor]:
    numbers = keep.nonzero().flatten()
    before = torch.cat([numbers.new_zeros(1), keep.cumsum(0)])
    indices = csr.indices[numbers] if columns is None else columns[csr.indices[numbers].long()]
    return Csr(before[csr.indptr], indices, csr.num_cols if num_cols is None else num_cols, csr.targets), numbers


def fill_levels(inner: Csr, halo: Csr | None, inner_value: Tensor, halo_value: Tensor | None, budget: Tensor) -> Tensor:
    rows, value = inner.edge_rows, inner_value[inner.indices.long()]
    if halo is not None and halo_value is not None:
        rows, value = torch.cat([rows, halo.edge_rows]), torch.cat([value, halo_value[halo.indices.long()]])
    degree, level = torch.bincount(rows, minlength=len(budget)), torch.zeros_like(budget)
    full_before = torch.full_like(degree, -1)
    while True:
        full = level[rows] * value >= 1
        count = torch.zeros_like(degree).index_add_(0, rows, full.long())
        more = count > full_before
        if not bool(more.any()):
            break
        rest = torch.zeros_like(level).index_add_(0, rows, value.masked_fill(full, 0.0))
        risen = torch.maximum(level, (budget - count) / rest)
        level, full_before = torch.where(more, risen, level), torch.maximum(full_before, count)
    level[budget >= degree] = torch.inf
    level[(budget == 0) | (degree == 0)] = 0.0
    return level


def edge_probability(csr: Csr, of_row: Tensor, of_col: Tensor) -> Tensor:
    return (of_row[csr.edge_rows] * of_col[csr.indices.long()]).clamp_max(1.0)


def inclusion(csr: Csr, of_row: Tensor, of_col: Tensor, coupled: bool) -> Tensor:
    p = edge_probability(csr, of_row, of_col)
    if coupled:
        return torch.zeros_like(of_row).scatter_reduce_(0, csr.edge_rows, p, "amax")
    return -torch.zeros_like(of_row).index_add_(0, csr.edge_rows, (-p).log1p()).expm1()


def keep_weighted(
    stream: int,
    csr: Csr,
    factors: tuple[Tensor, Tensor],
    ids: tuple[Tensor, Tensor],
    transposed: bool,
    coupled: bool,
) -> Tensor:
    target, source = ids[0][csr.edge_rows], ids[1][csr.indices.long()]
    if transposed:
        target, source = source, target
    of_source = _shift(_mix64(_signed(stream) + source * _signed(GOLDEN)), 32)
    of_target = 0 if coupled else _mix64(_signed(stream) + target * _signed(GOLDEN)) & 0xFFFFFFFF
    bits = _mix32((of_target + of_source) & 0xFFFFFFFF)
    return (bits.double() + 0.5) * 2.0**-32 < edge_probability(csr, *factors)


def pack_rows(
    x: Tensor, bits: int, rows: Tensor | None, stream: int | None, out: Tensor, memory: Memory | None
) -> None:
    wide, largest = torch.float64 if x.dtype == torch.float64 else torch.float32, 2**bits - 1
    value = x[_places(rows)].to(wide)
    if memory is not None:
        base, held = memory.base, _places(memory.positions)
        value = value - base[held] if memory.delta else value + base[held]
    low, high = value.amin(1, keepdim=True), value.amax(1, keepdim=True)
    lo, unit = low.float() + 0.0, ((high - low) / largest).float()  # + 0 turns -0 into 0
    header = torch.cat([lo, unit], 1)
    header[~header.isfinite().all(1)] = torch.nan
    lo, unit = header.to(wide).split(1, 1)
    scaled = (value - lo) / unit
    if stream is not None:
        key = _mix64(_signed(stream) + torch.arange(len(value), device=x.device) * _signed(GOLDEN))
        scaled = scaled + (_feature_bits(key, x.shape[1]) >> 8).to(wide) * 2.0**-24
    code = (scaled.round() if stream is None else scaled.floor()).clamp(0, largest)
    code = torch.where(unit > 0, code, torch.zeros_like(code))
    if memory is not None:
        sent = lo + code * unit
        base[held] = base[held] + sent if memory.delta else value - sent
    padded = torch.nn.functional.pad(code.to(torch.int32), (0, -x.shape[1] % (8 // bits)))
    out[:, :8] = header.view(torch.uint8)
    out[:, 8:] = (padded.unflatten(1, (-1, 8 // bits)) << _code_places(bits, x.device)).sum(2).to(torch.uint8)


def unpack_rows(message: Tensor, bits: int, out: Tensor, rows: Tensor | None, accumulate: bool) -> None:
    wide, places = torch.float64 if out.dtype == torch.float64 else torch.float32, _places(rows)
    lo, unit = message[:, :8].clone(memory_format=torch.contiguous_format).view(torch.float32).to(wide).split(1, 1)
    code = (message[:, 8:, None].to(torch.int32) >> _code_places(bits, out.device)) & (2**bits - 1)
    value = lo + code.flatten(1)[:, : out.shape[1]].to(wide) * unit
    out[places] = (out[places].to(wide) + value if accumulate else value).to(out.dtype)


def _places(rows: Tensor | None) -> Tensor | slice:
    return slice(None) if rows is None else rows.long()


def _code_places(bits: int, device: torch.device) -> Tensor:
    """Return how many bits each code of a byte is shifted from the low end."""
    return torch.arange(0, 8, bits, dtype=torch.int32, device=device)


def _feature_bits(key: Tensor, width: int) -> Tensor:
    """Return 32 random bits for each feature of the rows with these keys, as int64 [rows, width]."""
    return _bits_of(key[:, None], torch.arange(width, device=key.device))


def _bits_of(key: Tensor, feature: Tensor) -> Tensor:
    """Return 32 random bits for one feature of each key."""
    low, high = key & 0xFFFFFFFF, (key >> 32) & 0xFFFFFFFF
    return _mix32((low + feature * (GOLDEN >> 32)) & 0xFFFFFFFF) ^ high


def _signed(value: int) -> int:
    """Return the int64 with the same 64 bits."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _shift(h: Tensor, bits: int) -> Tensor:
    """Shift int64 right, filling with zeros."""
    return (h >> bits) & ((1 << (64 - bits)) - 1)


def random_keys(stream: int, ids: Tensor) -> Tensor:
    return _mix64(_signed(stream) + ids * _signed(GOLDEN))


def _mix64(h: Tensor) -> Tensor:
    h = (h ^ _shift(h, 30)) * _signed(0xBF58476D1CE4E5B9)
    h = (h ^ _shift(h, 27)) * _signed(0x94D049BB133111EB)
    return h ^ _shift(h, 31)


def _mix32(h: Tensor) -> Tensor:
    h = ((h ^ (h >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    h = ((h ^ (h >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return h ^ (h >> 16)
