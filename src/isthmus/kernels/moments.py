"""Sums down the columns of rows, for norms over all nodes: each takes one pass over the rows."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.kernels import twin
from isthmus.kernels.ops import _SUFFIX, _core_for, _int, _ptr, _rows

_NATIVE = (torch.float32, torch.float64)


def column_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of the columns of x [n, F] and the sum of squared deviations from it, float64 [F] each.

    Both are zeros where there is no row.
    """
    lib = _core_for(x)
    if lib is None or x.dtype not in _NATIVE:
        return twin.column_moments(x)
    x = _rows(x)
    mean, squares = (torch.empty(x.shape[1], dtype=torch.float64) for _ in range(2))
    getattr(lib, f"column_moments_{_SUFFIX[x.dtype]}")(
        *(_int(len(x)), _int(x.shape[1]), _ptr(x), _int(x.stride(0)), _ptr(mean), _ptr(squares)),
        torch.get_num_threads(),
    )
    return mean, squares


def merge_moments(every: Tensor) -> Tensor:
    """Return number, means and variances (biased) of all workers' rows by group, float64 [groups, 1 + 2F].

    ``every`` [workers, groups, 1 + 2F] has the number of each worker's rows and what `column_moments` gives of them.
    They are merged as Chan, Golub and LeVeque do it, which loses no digits where the mean is large beside the
    deviation, and in the order of workers, so that all of them get the same bits.
    """
    lib = _core_for(every)
    if lib is None:
        return twin.merge_moments(every)
    workers, groups, size = every.shape
    merged = torch.empty(groups, size, dtype=torch.float64)
    lib.merge_moments(_int(workers), _int(groups), _int(size // 2), _ptr(every), _ptr(merged))
    return merged


def norm_grad_sums(x: Tensor, grad: Tensor, mean: Tensor) -> Tensor:
    """Return Σ grad and Σ grad (x - mean) down the columns, float64 [2, F]; x and grad [n, F], mean [F]."""
    lib = _core_for(x)
    if lib is None or x.dtype not in _NATIVE:
        return twin.norm_grad_sums(x, grad, mean)
    x, grad, mean = (tensor.contiguous() for tensor in (x, grad, mean))
    total = torch.empty(2, x.shape[1], dtype=torch.float64)
    getattr(lib, f"norm_grad_sums_{_SUFFIX[x.dtype]}")(
        *(_int(len(x)), _int(x.shape[1]), _ptr(x), _ptr(grad), _ptr(mean), _ptr(total), torch.get_num_threads()),
    )
    return total


def norm_grad(x: Tensor, grad: Tensor, columns: Tensor) -> Tensor:
    """Return a grad + b (x - mean) + c, [n, F], where the rows of ``columns`` [4, F] are mean, a, b and c."""
    lib = _core_for(x)
    if lib is None or x.dtype not in _NATIVE:
        return twin.norm_grad(x, grad, columns)
    x, grad, columns = (tensor.contiguous() for tensor in (x, grad, columns))
    out = torch.empty_like(x)
    getattr(lib, f"norm_grad_{_SUFFIX[x.dtype]}")(
        *(_int(len(x)), _int(x.shape[1]), _ptr(x), _ptr(grad), _ptr(columns), _ptr(out), torch.get_num_threads()),
    )
    return out
