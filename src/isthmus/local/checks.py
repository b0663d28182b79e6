"""Checks of what a model gives to the graph, since the kernels trust their inputs."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.device import is_host
from isthmus.errors import InputError
from isthmus.shard import Shard


def check_rows(x: Tensor, count: int) -> None:
    """Check that x has one row for each of ``count`` inner nodes."""
    if x.dim() != 2 or len(x) != count:
        raise InputError(
            f"rows of shape {tuple(x.shape)} were given to a graph with {count} inner nodes: "
            f"pass this worker's inner rows, [{count}, features]"
        )


def check_numbers(x: Tensor, count: int) -> None:
    """Check that x has one row per inner node and a dtype that can be summed."""
    check_rows(x, count)
    if x.dtype not in kernels.DTYPES and (x.dtype != torch.float16 or is_host(x.device)):
        raise InputError(f"rows of {x.dtype} were given: pass float32, float64 or bfloat16")


def check_only(only: Tensor, count: int) -> None:
    """Check that ``only`` holds row numbers, each once."""
    if only.dtype != torch.int64 or only.dim() != 1:
        raise InputError("only= takes numbers of rows, int64 [m]: for a mask, pass mask.nonzero().flatten()")
    if len(only) and not 0 <= int(only.min()) <= int(only.max()) < count:
        raise InputError(f"only= takes rows 0 to {count - 1}, not {int(only.min())} to {int(only.max())}")
    if len(only) != int(only.new_zeros(count, dtype=torch.bool).index_fill_(0, only, True).sum()):
        raise InputError("only= takes each row once: remove the duplicates")


def check_forward() -> None:
    """Check that no backward pass is running: sites and masks are numbered by the forward pass alone."""
    if torch._C._current_graph_task_id() >= 0:
        raise InputError("the graph was called in a backward pass: activation checkpoints must leave its calls out")


def check_all_edges(shard: Shard, what: str) -> None:
    """Check that every edge of an inner node is here, since the model reads ``what``, which names all of them."""
    if shard.replicated:
        raise InputError(
            f"the model reads {what}, but under a vertex-cut a node's edges are on several workers: take the graph's "
            "own aggregations, or parts of an edge-cut (isthmus partition --cut edge)"
        )
