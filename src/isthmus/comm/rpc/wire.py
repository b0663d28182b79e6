"""The form of requests and answers: a short json header that describes the tensors after it, one frame each."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

MOST_OF_A_REQUEST = 1 << 20  # bytes of a frame that a worker takes before it knows who sent it
MOST_OF_A_HEADER = 4096
MOST_TENSORS = 8
_BY_NAME = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    )
}


class Malformed(ValueError):
    """An error: a message that no worker of this version writes."""


def pack(header: dict[str, Any], tensors: Sequence[Tensor]) -> list[Any]:
    """Return a message as frames; the tensors' memory is sent as it lies, so it must not change any more."""
    tensors = [tensor.detach().contiguous() for tensor in tensors]
    forms = [[str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for tensor in tensors]
    return [json.dumps({**header, "tensors": forms}).encode(), *(_bytes(tensor) for tensor in tensors)]


def unpack(frames: Sequence[Any]) -> tuple[dict[str, Any], list[Tensor]]:
    """Return header and tensors of a message; raise `Malformed` unless every frame is what the header says."""
    if not 1 <= len(frames) <= 1 + MOST_TENSORS or len(frames[0]) > MOST_OF_A_HEADER:
        raise Malformed(f"{len(frames)} frames")
    try:
        header = json.loads(bytes(frames[0]))
        forms = header.pop("tensors")
        pairs = list(zip(forms, frames[1:], strict=True))
        tensors = [_tensor(_BY_NAME[dtype], shape, frame) for (dtype, shape), frame in pairs]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Malformed(f"{type(error).__name__}: {error}"[:200]) from None
    return header, tensors


def _tensor(dtype: torch.dtype, shape: list[int], frame: Any) -> Tensor:
    """Return a tensor over the memory of a frame."""
    if len(shape) > 4 or not all(isinstance(size, int) and 0 <= size < 2**40 for size in shape):
        raise ValueError(f"a tensor of shape {str(shape)[:60]}")
    content = memoryview(frame)
    if math.prod(shape) * dtype.itemsize != content.nbytes:
        raise ValueError(f"{content.nbytes} bytes for a tensor of shape {shape}")
    if not content.nbytes:
        return torch.empty(shape, dtype=dtype)
    held = torch.frombuffer(bytearray(content) if content.readonly else content, dtype=torch.uint8)
    if held.data_ptr() % dtype.itemsize:
        held = held.clone()
    return held.view(dtype).view(shape)


def _bytes(tensor: Tensor) -> Any:
    return b"" if not tensor.numel() else tensor.view(-1).view(torch.uint8).numpy().data
