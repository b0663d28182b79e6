"""Calls of torch that a model's dropout does not look at.

While a model runs, `nn.node_dropout` sees each of its calls of torch, at some microseconds each. The library's own work
in between, a few hundred small calls in every step, has no dropout of torch in it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def straight(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function call torch straight, not by way of what watches its caller's model."""

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        with torch._C.DisableTorchFunction():
            return function(*args, **options)

    return call
