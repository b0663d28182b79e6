"""Estimate what a part takes on an accelerator, and refuse one that cannot fit before anything is copied."""

from __future__ import annotations

import torch

from isthmus.device import free_memory
from isthmus.errors import InputError
from isthmus.graph.graph import SparseRows
from isthmus.partition import Part
from isthmus.units import size_text

_OFFSET, _INDEX = 8, 4  # bytes of a row's offset and of an edge's column


def part_bytes(part: Part, dtype: torch.dtype) -> int:
    """Return the least bytes of a part on a device: edges and their transpose, features, and their aggregate.

    Activations come on top: their size is the model's, and `isthmus plan` measures it.
    """
    edges = len(part.inner_indices) + len(part.halo_indices)
    rows = len(part.nodes) + len(part.halo_nodes)
    pattern = 2 * (edges * _INDEX + 2 * len(part.nodes) * _OFFSET)
    if isinstance(part.x, SparseRows):
        return pattern + len(part.x.data) * (dtype.itemsize + _INDEX)
    return pattern + (rows + len(part.nodes)) * part.x.shape[1] * dtype.itemsize


def check_room(part: Part, dtype: torch.dtype, device: torch.device, rank: int) -> None:
    """Refuse a part that is larger than the free memory of the device."""
    memory, needed = free_memory(device), part_bytes(part, dtype)
    if memory is not None and needed > memory[0]:
        raise InputError(
            f"worker {rank}: its part takes at least {size_text(needed)} on {device}, which has {size_text(memory[0])} "
            f"free of {size_text(memory[1])}: cut the graph into more parts, or give --device cpu"
        )
