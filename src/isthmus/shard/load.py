"""Build the shard of a part on disk."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import torch
from torch import Tensor

from isthmus.comm import Links
from isthmus.device import HOST
from isthmus.kernels import Csr
from isthmus.partition.part import Part
from isthmus.shard.shard import Nodes, Shard


def shard_of(part: Part, workers: int, symmetric: bool, dtype: torch.dtype, device: torch.device = HOST) -> Shard:
    """Return the shard of a part on disk, for a run with this many workers; float edge attributes in ``dtype``.

    On the host its arrays stay memory-mapped; to another device they are copied once.
    """
    n, h, ends = len(part.nodes), len(part.halo_nodes), part.send_ptr
    here = partial(as_tensor, device=device)
    attributes = None
    if part.inner_edge_attr is not None and part.halo_edge_attr is not None:
        inner, halo = here(part.inner_edge_attr), here(part.halo_edge_attr)
        attributes = (inner.to(dtype), halo.to(dtype)) if inner.is_floating_point() else (inner, halo)
    send_rows = [here(part.send_rows[ends[q] : ends[q + 1]]) for q in range(workers)]
    shard = Shard(
        inner=Csr(here(part.inner_indptr), here(part.inner_indices), n),
        halo=Csr(here(part.halo_indptr), here(part.halo_indices), h),
        links=Links(send_rows, np.diff(part.halo_ptr).tolist()),
        nodes=Nodes(*map(here, (part.nodes, part.halo_nodes, part.degree, part.halo_degree))),
        symmetric=symmetric,
        edge_attr=attributes,
    )
    shard.stored_cover = None if part.cover is None else here(part.cover)
    return shard


def as_tensor(array: np.ndarray, device: torch.device = HOST) -> Tensor:
    """Return the array's memory as a tensor, or a copy of it on a device.

    Most mapped files are read-only, and nothing here writes to them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)
