"""Memory for messages and rows, reused from step to step: fresh pages would cost more than writing the rows."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

_SPARE = 8  # buffers are made 1/8 larger than asked, because drawn messages differ a little from step to step


class Buffers:
    """A pool that hands out tensors of any shape; each is the caller's until it is given back."""

    def __init__(self, device: torch.device | None = None, most: int | None = None) -> None:
        """``most``: the bytes that are kept for later, at most; those that were given back first are let go."""
        self.device, self.most = device, most
        self.reuses = device is None or device.type == "cpu"  # torch keeps freed memory of other devices by itself
        self._free: list[Tensor] = []
        self._lending = threading.Lock()
        self._lent: dict[int, Tensor] = {}

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        size = dtype.itemsize
        for extent in shape:
            size *= extent
        if not size or not self.reuses:
            return torch.empty(shape, dtype=dtype, device=self.device)
        while self.most is not None and sum(memory.numel() for memory in self._free) > self.most:
            self._free.pop(0)
        fitting = [i for i, memory in enumerate(self._free) if size <= memory.numel() <= 2 * size]
        if fitting:
            memory = self._free.pop(min(fitting, key=lambda i: self._free[i].numel()))
        else:
            outgrown = [i for i, memory in enumerate(self._free) if memory.numel() < size]
            if outgrown:
                self._free.pop(outgrown[0])
            memory = torch.empty(size + size // _SPARE // 64 * 64, dtype=torch.uint8)
        self._lent[memory.data_ptr()] = memory
        return memory[:size].view(dtype).view(shape)

    def lend(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return a tensor that is given back by itself when nothing reads its memory any more, views included.

        Any thread may call this, if none takes.
        """
        with self._lending:
            memory = self.take(tuple(shape), dtype)
        if not self.reuses or not memory.numel():
            return memory
        lent = memory.view(-1).view(torch.uint8).numpy()  # the storage of a tensor made of it keeps it alive
        weakref.finalize(lent, self.give, memory).atexit = False
        return torch.frombuffer(lent, dtype=dtype).resize_(shape)  # no view: it may be changed in place

    def give(self, tensor: Tensor) -> None:
        """Take a tensor back; ignore one that was not lent here."""
        memory = self._lent.pop(tensor.data_ptr(), None) if self.reuses and tensor.numel() else None
        if memory is not None:
            self._free.append(memory)


_LEAST, _MOST = 2**20, 2**28  # bytes of what is worth to be kept; more would cost too much
_ROOM = Buffers(most=2**29)


def room(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return memory on the host for rows that differ a little in number from step to step, used again when it is free.

    malloc finds no place for them among what was freed, and would ask for new memory nearly every time.
    """
    if _LEAST <= math.prod(shape) * dtype.itemsize <= _MOST:
        return _ROOM.lend(shape, dtype)
    return torch.empty(tuple(shape), dtype=dtype)
