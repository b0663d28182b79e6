"""Calls of torch that a model's dropout does not look at.

While a model runs, `nn.node_dropout` sees each of its calls of torch, at some microseconds each. The library's own work
in between, a few hundred small calls in every step, has no dropout of torch in it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch

Class = TypeVar("Class", bound=type)


def straight(*names: str) -> Callable[[Class], Class]:
    """Let these methods of a class call torch straight, not by way of what watches their caller's model."""

    def changed(kind: Class) -> Class:
        for name in names:
            setattr(kind, name, _straight(getattr(kind, name)))
        return kind

    return changed


def _straight(method: Callable) -> Callable:
    @wraps(method)
    def call(*args: Any, **options: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return method(*args, **options)

    return call
