"""Python entry to the fast loops: the native core on the host, Triton on CUDA where it has the loop, else torch twins.

Keyed draws and masks are integers on every device, so they are the same bits everywhere.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from isthmus.kernels import on_csr, on_triton, twin
from isthmus.kernels.buffers import room
from isthmus.kernels.csr import Csr, Scores, Weights
from isthmus.kernels.native import core

_SUFFIX = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16"}
HALVES = (torch.bfloat16, torch.float16)  # are summed in float32
DTYPES = tuple(_SUFFIX)  # of rows; the core has no loops for fp16
_UNWEIGHTED = Weights()
_FLOAT = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double, torch.bfloat16: ctypes.c_float}


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which rows are summed: their own, but float32 for bf16 and fp16 rows."""
    return torch.float32 if dtype in HALVES else dtype


def aggregate(
    csr: Csr,
    x: Tensor,
    weights: Weights = _UNWEIGHTED,
    out: Tensor | None = None,
    *,
    accumulate: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    r"""Return the weighted sum of rows over a sparse pattern.

    .. math:: out_{t_r} \;(+)\!= row_{t_r} \Bigl( [add\_self]\, col_r x_r
              + \sum_{e \in row\,r} edge_e\, col_{j_e}\, x_{j_e} \Bigr)

    Shapes: ``x`` [cols, F] in float32, float64, or bfloat16 or float16 (summed in float32); ``weights`` in the dtype of
    the sums; ``out`` [targets, F]. The result is in the dtype of the sums, or in half of it if ``dtype`` or ``out`` is.
    """
    sums = sum_dtype(x.dtype)
    lib = _core_for(x)
    if out is None:
        shape = (csr.num_rows, x.shape[1])
        out = torch.empty(shape, dtype=dtype or sums, device=x.device) if lib is None else room(shape, dtype or sums)
    if lib is None:
        way = on_triton if on_triton.runs(x) else on_csr if on_csr.runs(csr, x) else twin
        way.aggregate(csr, x, weights, out, accumulate)
        return out
    x, rounded = _rows(x), "" if out.dtype == sums else f"_{_SUFFIX[out.dtype]}"
    getattr(lib, f"aggregate_{_SUFFIX[x.dtype]}{rounded}")(
        *(_int(csr.num_rows), _ptr(csr.indptr), _ptr(csr.indices), _ptr(csr.targets)),
        *(_ptr(x), _int(x.shape[1]), _int(x.stride(0))),
        *(_ptr(_as(weights.edge, sums)), _ptr(_as(weights.col, sums)), _ptr(_as(weights.row, sums))),
        *(_ptr(out), _int(out.stride(0)), int(weights.add_self), int(accumulate), torch.get_num_threads()),
    )
    return out


def transpose(csr: Csr) -> tuple[Csr, Tensor]:
    """Return the transposed pattern, and for each of its edges the number of the same edge in `csr` (int64 [edges])."""
    lib = _core_for(csr.indices)
    if lib is None:
        return twin.transpose(csr)
    turned = Csr(torch.empty(csr.num_cols + 1, dtype=torch.int64), room((csr.num_edges,), torch.int32), csr.num_rows)
    order = room((csr.num_edges,), torch.int64)
    lib.transpose_csr(
        *(_int(csr.num_rows), _int(csr.num_cols), _ptr(csr.indptr), _ptr(csr.indices)),
        *(_ptr(turned.indptr), _ptr(turned.indices), _ptr(order)),
    )
    return turned, order


def gather_rows(x: Tensor, rows: Tensor, out: Tensor | None = None) -> Tensor:
    """Gather rows: ``out[i] = x[rows[i]]``; rows int32 or int64, ``out`` contiguous, in the dtype of x or in bf16."""
    if out is None:
        out = x.new_empty(len(rows), x.shape[1])
    if not _gather(x, rows, 0, out):
        twin.gather_rows(x, rows, out)
    return out


def gather_held(x: Tensor, nodes: Tensor, first: int, out: Tensor) -> Tensor:
    """Gather the rows of nodes (int64 [m]) that x has, those of ``first`` … ``first + len(x) - 1``; ``out`` [m, F].

    Returns the places of the others, ascending, int64: there ``out`` is left as it is.
    """
    nodes = nodes.contiguous()
    if not _gather(x, nodes, first, out):
        return twin.gather_held(x, nodes, first, out)
    lib, places = _core_for(x), torch.empty(len(nodes) + 1, dtype=torch.int64)
    assert lib is not None
    lib.places_outside.restype = ctypes.c_int64
    return places[: lib.places_outside(_int(len(nodes)), _ptr(nodes), _int(first), _int(len(x)), _ptr(places))]


def _gather(x: Tensor, nodes: Tensor, first: int, out: Tensor) -> bool:
    """Gather by the native core; return whether that could be done."""
    lib = _core_for(x)
    rounds = x.dtype == torch.float32 and out.dtype == torch.bfloat16
    if lib is None or not (rounds or out.dtype == x.dtype):
        return False
    x, size = _rows(x), 1 if rounds else x.element_size()
    name, ids = "gather_rounded" if rounds else "gather_rows", "i64" if nodes.dtype == torch.int64 else "i32"
    getattr(lib, f"{name}_{ids}")(
        *(_int(len(nodes)), _ptr(nodes), _int(first), _int(len(x))),
        *(_ptr(x), _int(x.shape[1] * size), _int(x.stride(0) * size), _ptr(out), torch.get_num_threads()),
    )
    return True


def scatter_add_rows(out: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """Add to some rows in place: ``out[rows[i]] += values[i]``; rows int32, distinct."""
    if values.shape != (len(rows), out.shape[1]):
        raise ValueError(f"{tuple(values.shape)} values for {len(rows)} rows of {out.shape[1]}: give one for each")
    lib = _core_for(out)
    if lib is None:
        twin.scatter_add_rows(out, rows, values)
        return out
    values = values.contiguous()
    getattr(lib, f"scatter_add_{_SUFFIX[out.dtype]}")(
        *(_int(len(rows)), _ptr(rows), _ptr(values), _int(out.shape[1])),
        *(_ptr(out), _int(out.stride(0)), torch.get_num_threads()),
    )
    return out


def dropout(
    x: Tensor,
    nodes: Tensor,
    stream: int,
    p: float,
    *,
    relu: bool = False,
    out: Tensor | None = None,
    before: Tensor | None = None,
) -> Tensor:
    """Drop each feature with probability p and scale the others by 1/(1-p); with `relu`, drop negative features too.

    Which features are dropped depends on (stream, nodes[i], feature) alone. Shapes: ``x`` [n, F], ``nodes`` int64 [n].
    ``out``, if given, is contiguous, may be x itself, and receives the result; ``before`` receives relu(x) without
    dropout.
    """
    threshold, scale = _drops(p)
    lib = _core_for(x)
    if lib is None:
        if before is not None:
            before.copy_(x.clamp_min(0) if relu else x)
        result = twin.dropout(x, nodes, stream, threshold, scale, relu)
        return result if out is None else out.copy_(result)
    x = x.contiguous()
    out = torch.empty_like(x) if out is None else out
    getattr(lib, f"dropout_{_SUFFIX[x.dtype]}")(
        *(_int(len(x)), _int(x.shape[1]), _ptr(x), _ptr(nodes), ctypes.c_uint64(stream), ctypes.c_uint32(threshold)),
        *(_FLOAT[x.dtype](scale), int(relu), _ptr(out), _ptr(before), torch.get_num_threads()),
    )
    return out


def dropout_stored(csr: Csr, values: Tensor, nodes: Tensor, stream: int, p: float) -> Tensor:
    """Apply `dropout` to sparse rows: value e is feature ``csr.indices[e]`` of its row.

    Shapes: ``values`` [edges], ``nodes`` int64 [rows].
    """
    threshold, scale = _drops(p)
    lib = _core_for(values)
    if lib is None:
        return twin.dropout_stored(csr, values, nodes, stream, threshold, scale)
    values = values.contiguous()
    out = torch.empty_like(values)
    getattr(lib, f"dropout_stored_{_SUFFIX[values.dtype]}")(
        *(_int(csr.num_rows), _ptr(csr.indptr), _ptr(csr.indices), _ptr(values), _ptr(nodes), ctypes.c_uint64(stream)),
        *(ctypes.c_uint32(threshold), _FLOAT[values.dtype](scale), _ptr(out), torch.get_num_threads()),
    )
    return out


def _drops(p: float) -> tuple[int, float]:
    """Return the threshold below which 32 random bits drop a feature, and the factor that scales the others."""
    return min(round(p * 2**32), 2**32 - 1), 1.0 / (1.0 - p)


def kept_positive(out: Tensor, grad: Tensor, scale: float) -> Tensor:
    """Return the gradient of relu and dropout from their result: ``grad * scale`` where ``out > 0``, else 0."""
    lib = _core_for(out)
    if lib is None:
        return twin.kept_positive(out, grad, scale)
    out, grad = out.contiguous(), grad.contiguous()
    result = room(grad.shape, grad.dtype)
    getattr(lib, f"kept_positive_{_SUFFIX[out.dtype]}")(
        *(_int(out.numel()), _ptr(out), _ptr(grad), _FLOAT[out.dtype](scale), _ptr(result), torch.get_num_threads()),
    )
    return result


def both_positive(out: Tensor, grad: Tensor, scale: float, before: Tensor, also: Tensor) -> Tensor:
    """Return `kept_positive` plus ``also`` where ``before > 0``: the gradient if relu's own result was used, too."""
    lib = _core_for(out)
    if lib is None:
        return twin.both_positive(out, grad, scale, before, also)
    out, grad, before, also = (tensor.contiguous() for tensor in (out, grad, before, also))
    result = torch.empty_like(grad)
    getattr(lib, f"both_positive_{_SUFFIX[out.dtype]}")(
        *(_int(out.numel()), _ptr(out), _ptr(grad), _FLOAT[out.dtype](scale), _ptr(before), _ptr(also), _ptr(result)),
        torch.get_num_threads(),
    )
    return result


def attention(csr: Csr, scores: Scores, x: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return softmax attention over the edges j → i of each row, per head, and the weights α of the edges.

    .. math:: α_{ij} = softmax_j\bigl(leaky(t_i + s_j)\bigr), \qquad out_i = \sum_j α_{ij} x_j

    Shapes: ``x`` [cols, H·D] → out [rows, H·D], alpha [edges, H].
    """
    lib = _core_for(x)
    if lib is None:
        return (on_triton if on_triton.runs(x) else twin).attention(csr, scores, x)
    target, source, x = scores.target.contiguous(), scores.source.contiguous(), x.contiguous()
    heads = target.shape[1]
    alpha, out = x.new_empty(csr.num_edges, heads), x.new_empty(csr.num_rows, x.shape[1])
    getattr(lib, f"attention_{_SUFFIX[x.dtype]}")(
        *(_int(csr.num_rows), _ptr(csr.indptr), _ptr(csr.indices), _int(heads), _int(x.shape[1] // heads)),
        *(_ptr(target), _ptr(source), _FLOAT[x.dtype](scores.slope)),
        *(_ptr(x), _ptr(alpha), _ptr(out), torch.get_num_threads()),
    )
    return out, alpha


def attention_grad(
    csr: Csr, turned: tuple[Csr, Tensor], scores: Scores, x: Tensor, alpha: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of `attention` by (target, source, x); ``turned`` is ``transpose(csr)``."""
    lib = _core_for(x)
    if lib is None:
        if on_triton.runs(x):
            return on_triton.attention_grad(csr, turned, scores, x, alpha, grad)
        return twin.attention_grad(csr, scores, x, alpha, grad)
    target, source = scores.target.contiguous(), scores.source.contiguous()
    x, grad = x.contiguous(), grad.contiguous()
    heads, (back, order) = target.shape[1], turned
    grad_score, grad_target = torch.empty_like(alpha), torch.empty_like(target)
    grad_source, grad_x = torch.empty_like(source), torch.empty_like(x)
    getattr(lib, f"attention_grad_{_SUFFIX[x.dtype]}")(
        *(_int(csr.num_rows), _ptr(csr.indptr), _ptr(csr.indices)),
        *(_int(back.num_rows), _ptr(back.indptr), _ptr(back.indices), _ptr(order)),
        *(_int(heads), _int(x.shape[1] // heads), _ptr(target), _ptr(source), _FLOAT[x.dtype](scores.slope)),
        *(_ptr(x), _ptr(alpha), _ptr(grad), _ptr(grad_score)),
        *(_ptr(grad_target), _ptr(grad_source), _ptr(grad_x), torch.get_num_threads()),
    )
    return grad_target, grad_source, grad_x


def _core_for(x: Tensor) -> ctypes.CDLL | None:
    return core() if x.device.type == "cpu" and x.dtype != torch.float16 else None


def _ptr(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def _int(value: int) -> ctypes.c_int64:
    return ctypes.c_int64(value)


def _rows(x: Tensor) -> Tensor:
    """Return x with the features of a row next to each other in memory."""
    return x if x.stride(1) == 1 else x.contiguous()


def _as(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if tensor is not None and tensor.dtype != dtype:
        raise TypeError(f"scales and weights must be {dtype} like the sums, not {tensor.dtype}: convert them once")
    return tensor
