"""Aggregation by torch's own sparse CSR product, where there is neither the native core nor Triton.

Measured on a CPU it is 5 to 25 times as fast as the twin's `index_add`, with the same bits there. It has no halves, and
on a device its sums have no promised order: those, and deterministic runs, take the twin.
"""

from __future__ import annotations

import warnings
from functools import cache

import torch
from torch import Tensor

from isthmus.kernels import twin
from isthmus.kernels.csr import Csr, Weights

_DTYPES = (torch.float32, torch.float64)
_LARGEST = 2**31 - 1  # columns are 32-bit, so offsets must be, too


def runs(csr: Csr, x: Tensor) -> bool:
    """Return whether torch has this product where x is."""
    ordered = torch.are_deterministic_algorithms_enabled() and x.device.type != "cpu"
    fits = 0 < csr.num_edges <= _LARGEST and x.shape[1] > 0 and csr.num_rows > 0
    return fits and x.dtype in _DTYPES and x.device.type != "mps" and not ordered


@cache
def _let_torch_warn() -> None:
    """Let torch say, once per process and to nobody, that its sparse products are in beta."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.eye(1).to_sparse_csr()


def aggregate(csr: Csr, x: Tensor, weights: Weights, out: Tensor, accumulate: bool) -> None:
    """Compute `ops.aggregate`."""
    begin, end = csr.indptr[[0, -1]].tolist()  # some rows of a larger pattern have columns in the middle of its own
    edge = x.new_ones(end - begin) if weights.edge is None else weights.edge[begin:end]
    offsets, columns = (csr.indptr - begin).to(torch.int32), csr.indices[begin:end]
    scaled = x if weights.col is None else x * weights.col[:, None]
    _let_torch_warn()
    pattern = torch.sparse_csr_tensor(offsets, columns, edge, (csr.num_rows, len(x)), check_invariants=False)
    twin.store(csr, pattern @ scaled, scaled, weights, out, accumulate)
