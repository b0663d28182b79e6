"""What a model may give to the graph. The kernels trust what they get, so it is looked at here."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.errors import InputError


def check_rows(x: Tensor, count: int) -> None:
    """x has a row for each of ``count`` inner nodes."""
    if x.dim() != 2 or len(x) != count:
        raise InputError(
            f"rows of shape {tuple(x.shape)} were given to a graph with {count} inner nodes: "
            f"pass this worker's inner rows, [{count}, features]"
        )


def check_numbers(x: Tensor, count: int) -> None:
    """The same, and they can be summed."""
    check_rows(x, count)
    if x.dtype not in kernels.DTYPES:
        raise InputError(f"rows of {x.dtype} were given: pass float32, float64 or bfloat16")


def check_only(only: Tensor, count: int) -> None:
    """These are numbers of rows, each once."""
    if only.dtype != torch.int64 or only.dim() != 1:
        raise InputError("only= takes numbers of rows, int64 [m]; of a mask they are mask.nonzero().flatten()")
    if len(only) and not 0 <= int(only.min()) <= int(only.max()) < count:
        raise InputError(f"only= takes rows 0 to {count - 1}, not {int(only.min())} to {int(only.max())}")
    if len(only) != int(only.new_zeros(count, dtype=torch.bool).index_fill_(0, only, True).sum()):
        raise InputError("only= takes each row once: some are there twice")


def check_forward() -> None:
    """Sites and masks are numbered in the order of the forward pass; a second one would be given others."""
    if torch._C._current_graph_task_id() >= 0:
        raise InputError("the graph was called in a backward pass: activation checkpoints must leave its calls out")
