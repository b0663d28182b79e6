"""Choose how rows of devices travel: by NCCL from device to device, or by gloo from host to host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch.distributed as dist

GLOO, NCCL = "gloo", "nccl"


class DeviceOf(NamedTuple):
    """The machine and the device of a worker; ``nccl``: its torch was built with NCCL."""

    machine: str
    device: str
    nccl: bool

    @property
    def type(self) -> str:
        return self.device.partition(":")[0]


def choose_backend(workers: Sequence[DeviceOf]) -> str:
    """Return ``nccl`` where every worker has a CUDA device of its own, else ``gloo``; all workers choose the same."""
    own = len({(worker.machine, worker.device) for worker in workers}) == len(workers)
    return NCCL if own and all(worker.type == "cuda" and worker.nccl for worker in workers) else GLOO


def nccl_is_here() -> bool:
    return dist.is_available() and dist.is_nccl_available()


def in_words(backend: str, workers: Sequence[DeviceOf]) -> str:
    """Return how rows travel, for the first line of a run; nothing if no device is involved."""
    kinds = sorted({worker.type for worker in workers})
    if kinds == ["cpu"]:
        return ""
    if len(workers) == 1:
        return f"on {workers[0].device}"
    way = "NCCL" if backend == NCCL else "gloo, through pinned memory of the hosts"
    return f"on {' and '.join(kinds)}, rows by {way}"
