"""Build the shard of a part on disk."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

from isthmus.comm import Links
from isthmus.kernels import Csr
from isthmus.partition.part import Part
from isthmus.shard.shard import Nodes, Shard


def shard_of(part: Part, workers: int, symmetric: bool, dtype: torch.dtype) -> Shard:
    """Return the shard of a part on disk, for a run with this many workers; float edge attributes in ``dtype``."""
    n, h, ends = len(part.nodes), len(part.halo_nodes), part.send_ptr
    attributes = None
    if part.inner_edge_attr is not None and part.halo_edge_attr is not None:
        inner, halo = as_tensor(part.inner_edge_attr), as_tensor(part.halo_edge_attr)
        attributes = (inner.to(dtype), halo.to(dtype)) if inner.is_floating_point() else (inner, halo)
    send_rows = [as_tensor(part.send_rows[ends[q] : ends[q + 1]]) for q in range(workers)]
    return Shard(
        inner=Csr(as_tensor(part.inner_indptr), as_tensor(part.inner_indices), n),
        halo=Csr(as_tensor(part.halo_indptr), as_tensor(part.halo_indices), h),
        links=Links(send_rows, np.diff(part.halo_ptr).tolist()),
        nodes=Nodes(*map(as_tensor, (part.nodes, part.halo_nodes, part.degree, part.halo_degree))),
        symmetric=symmetric,
        edge_attr=attributes,
    )


def as_tensor(array: np.ndarray) -> Tensor:
    """Return the array's memory as a tensor. Most mapped files are read-only, and nothing here writes to them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(array))
