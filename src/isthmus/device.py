"""Devices: which one a worker computes on, how much memory it has, and copies between it and the host.

Outside `kernels` and `comm` this is the only file that names a device type. It was written where there was no
accelerator: streams, events and pinned memory of CUDA were never run, all else is tested on a pretend device
(docs/devices.md says what was measured).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from isthmus.errors import InputError
from isthmus.units import size_text

HOST = torch.device("cpu")
AUTO = "auto"
HELP = "auto (this worker's accelerator, else the CPU), cpu, cuda, cuda:K, or another device of torch."


def pick(asked: str, local_rank: int = 0) -> torch.device:
    """Return the device of the worker with this number on its machine; make it torch's current one.

    ``auto`` is the accelerator that torch has here, else the host; a type without a number is shared out by rank.
    """
    if asked == AUTO:
        kind = _accelerator()
        return HOST if kind is None else _numbered(kind, None, local_rank)
    try:
        device = torch.device(asked)
    except (RuntimeError, TypeError):
        raise InputError(f"{asked!r} is no device of torch: use {HELP}") from None
    if device.type == HOST.type:
        return HOST
    return _numbered(device.type, device.index, local_rank)


def _accelerator() -> str | None:
    """Return the type of accelerator that torch has here; Apple's is left out, since it has no float64."""
    found = torch.accelerator.current_accelerator()
    return None if found is None or found.type == "mps" or not _module(found.type).is_available() else found.type


def _numbered(kind: str, index: int | None, local_rank: int) -> torch.device:
    count = _count(kind)
    if not count:
        raise InputError(f"torch finds no {kind} device here: give --device cpu, or install a torch built for {kind}")
    if index is None:
        index = local_rank % count
    if index >= count:
        raise InputError(f"there is no {kind}:{index}, only {count} such device(s): give one below {kind}:{count}")
    device = torch.device(kind, index)
    _module(kind).set_device(device)
    return device


def _count(kind: str) -> int:
    try:
        module = _module(kind)
        return module.device_count() if module.is_available() else 0
    except (RuntimeError, AttributeError):
        return 0


def _module(kind: str) -> Any:
    return torch.get_device_module(kind)


def is_host(device: torch.device) -> bool:
    return device.type == HOST.type


def on_host(tensor: Tensor) -> Tensor:
    """Return a tensor in the host's memory, where files and numpy can read it; unchanged if it is there."""
    return tensor.to(HOST)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of the host on a device; the copy does not hold up the caller where memory can be pinned."""
    pins = _pins(device) and tensor.is_cpu
    return tensor.pin_memory().to(device, non_blocking=True) if pins else tensor.to(device)


def _pins(device: torch.device) -> bool:
    """Return whether a device copies by itself from pinned memory of the host."""
    accelerator = torch.accelerator.current_accelerator()
    return accelerator is not None and device.type == accelerator.type != "mps"


def pinned(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of the host in memory that a device can copy from by itself, where there is such memory."""
    return tensor.pin_memory() if _pins(device) and not tensor.is_pinned() else tensor


def host_room(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return memory of the host for rows on their way to or from a device."""
    return torch.empty(*shape, dtype=dtype, pin_memory=device.type == "cuda")


def fed(batches: Iterable[Sequence[Tensor]], device: torch.device) -> Iterator[list[Tensor]]:
    """Yield tensors of the host on a device; where it copies by itself, those of the next turn are on their way."""
    copier, coming = Copier(device), list[Callable[[], Tensor]]()
    for tensors in batches:
        under_way, coming = coming, [copier.to_device(tensor) for tensor in tensors]
        if under_way:
            yield [arrived() for arrived in under_way]
    yield [arrived() for arrived in coming]


def free_memory(device: torch.device) -> tuple[int, int] | None:
    """Return the free and the total bytes of an accelerator; None for the host, or if it does not tell."""
    tell = None if is_host(device) else getattr(_module(device.type), "mem_get_info", None)
    return None if tell is None else tell(device)


def described(device: torch.device) -> str:
    """Return a device in words, such as "cuda:0 (NVIDIA A100, 79.1 GiB free of 80.0 GiB)"."""
    about = []
    if not is_host(device) and hasattr(_module(device.type), "get_device_name"):
        about.append(str(_module(device.type).get_device_name(device)))
    if memory := free_memory(device):
        about.append(f"{size_text(memory[0])} free of {size_text(memory[1])}")
    return f"{device} ({', '.join(about)})" if about else str(device)


def instructions() -> str:
    """Return the widest instructions of this host's processor that torch uses, such as AVX512."""
    return torch.backends.cpu.get_cpu_capability()


def every_device() -> list[torch.device]:
    """Return the accelerators of this machine."""
    kind = _accelerator()
    return [] if kind is None else [torch.device(kind, index) for index in range(_count(kind))]


def reached_by(device: torch.device) -> list[torch.device]:
    """Return the other accelerators of this machine whose memory a device reads directly, as far as torch can tell."""
    tell = getattr(_module(device.type), "can_device_access_peer", None)
    others = [other for other in every_device() if other != device]
    return [] if tell is None else [other for other in others if tell(device.index, other.index)]


def copy_rate(device: torch.device, size: int = 32 << 20) -> float:
    """Return the bytes per second of copies from the host's memory to a device."""
    rows, best = pinned(torch.zeros(size, dtype=torch.uint8), device), math.inf
    for _ in range(3):  # the first one also makes room
        _module(device.type).synchronize(device)
        begun = time.perf_counter()
        rows.to(device, non_blocking=True)
        _module(device.type).synchronize(device)
        best = min(best, time.perf_counter() - begun)
    return size / best


def multiplies_fast(device: torch.device, half: torch.dtype) -> bool:
    """Return whether an accelerator has instructions for bf16 or fp16; for the host ask `kernels.bf16_is_fast`."""
    module = _module(device.type)
    if half is torch.bfloat16 and hasattr(module, "is_bf16_supported"):
        return bool(module.is_bf16_supported())
    told = getattr(module, "get_amp_supported_dtype", None)
    return told is None or half in told()


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Let torch take algorithms whose sums have one order, so that runs on equal devices end with the same bits."""
    if not wanted:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA's products begin
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


class Copier:
    """Copies rows from a device to pinned memory of the host and back, on a stream of their own."""

    def __init__(self, device: torch.device):
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def to_host(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], Callable[[], None] | None]:
        """Return copies in the host's memory, and a function that waits until they are complete; None: they are."""
        if self.stream is None:
            return [on_host(tensor) for tensor in tensors], None
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            copies = [self.room(tensor).copy_(tensor, non_blocking=True) for tensor in tensors]
        for tensor in tensors:
            if not tensor.is_cpu:
                tensor.record_stream(self.stream)  # its memory must not be given to others before it is copied
        return copies, self.stream.record_event().synchronize

    def to_device(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Copy a tensor of the host; return a function that gives the copy to the stream that computes."""
        if self.stream is None:
            copy = tensor.to(self.device)
            return lambda: copy
        with torch.cuda.stream(self.stream):
            coming = tensor.to(self.device, non_blocking=True)
        arrived = self.stream.record_event()

        def given() -> Tensor:
            computing = torch.cuda.current_stream(self.device)
            computing.wait_event(arrived)
            coming.record_stream(computing)
            return coming

        return given

    def room(self, tensor: Tensor) -> Tensor:
        """Return memory of the host for a tensor that will arrive."""
        return host_room(tensor.shape, tensor.dtype, self.device)
