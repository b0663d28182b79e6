"""Estimate what a part takes on an accelerator, and refuse one that cannot fit before anything is copied."""

from __future__ import annotations

import torch

from isthmus.comm import Transport
from isthmus.device import free_memory
from isthmus.errors import InputError
from isthmus.graph.graph import SparseRows
from isthmus.kernels.host_rows import BLOCK_BYTES
from isthmus.partition import Part
from isthmus.units import size_text

_OFFSET, _INDEX = 8, 4  # bytes of a row's offset and of an edge's column


def part_bytes(part: Part, dtype: torch.dtype, on_host: bool = False) -> int:
    """Return the least bytes of a part on a device: edges and their transpose, features, and their aggregate.

    ``on_host``: the features stay there, and a block of them is on the device.

    Activations come on top: their size is the model's, and `isthmus plan` measures it.
    """
    edges = len(part.inner_indices) + len(part.halo_indices)
    rows = len(part.nodes) + len(part.halo_nodes)
    pattern = 2 * (edges * _INDEX + 2 * len(part.nodes) * _OFFSET)
    if isinstance(part.x, SparseRows):
        return pattern + len(part.x.data) * (dtype.itemsize + _INDEX)
    row = part.x.shape[1] * dtype.itemsize
    features = (rows + len(part.nodes)) * row
    return pattern + (min(features, 2 * BLOCK_BYTES) if on_host else features)


def check_room(part: Part, dtype: torch.dtype, transport: Transport, on_host: bool) -> None:
    """Refuse a part that is larger than the free memory of this worker's device."""
    rank, device = transport.rank, transport.device
    memory, needed = free_memory(device), part_bytes(part, dtype, on_host)
    if memory is not None and needed > memory[0]:
        sparse = isinstance(part.x, SparseRows)
        remedy = "" if on_host or sparse else f"--features-on host ({size_text(part_bytes(part, dtype, True))}), "
        raise InputError(
            f"worker {rank}: its part takes at least {size_text(needed)} on {device}, which has {size_text(memory[0])} "
            f"free of {size_text(memory[1])}: cut the graph into more parts, or give {remedy}--device cpu"
        )
