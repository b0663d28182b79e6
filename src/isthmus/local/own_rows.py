"""Find in autograd's graph what was computed of this worker's rows alone, where one process has the rows of all.

A model and a loss are written as for one process. Their sums over nodes are then those of a part: what can be told
from the graph of a loss, before its backward pass, is refused or said.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from isthmus.errors import InputError

_SUM = 2  # torch's number of a reduction
_PASSING = ("AddBackward", "SubBackward", "MulBackward", "NegBackward")
_MOST = 20_000  # nodes that are looked at
_OVER_ROWS = {
    "MeanBackward1": "mean",
    "SumBackward1": "sum",
    "MaxBackward0": "maximum",
    "MinBackward0": "minimum",
    "StdBackward0": "deviation",
    "VarBackward0": "variance",
    "SoftmaxBackward0": "softmax",
}


def check_is_mean(loss: Tensor) -> None:
    """Refuse a loss that is a sum over rows, or a mean over class weights: a worker's would count by its rows."""
    is_sum = any(getattr(term, "_saved_reduction", 0) == _SUM for term in _terms(loss))
    if is_sum or _name(loss.grad_fn) == "SumBackward0":
        raise InputError(
            "the loss is a sum over this worker's rows, not a mean: give what divides it, worker.step(total, "
            "weight=number of rows); weight=1 / worker.size leaves it a sum"
        )
    if any(_name(one).startswith("NllLoss") and one._saved_weight is not None for one in _terms(loss)):
        raise InputError(
            "the loss has class weights, and a worker's mean is over those of its own rows: give "
            "worker.step(cross_entropy(out, y, w, reduction='sum'), weight=w[y].sum())"
        )


def over_own_rows(loss: Tensor, rows: int) -> str | None:
    """Return a note if the loss depends on a sum, mean or maximum over as many rows as this worker has."""
    for node in _nodes(loss):
        word = _OVER_ROWS.get(_name(node))
        if word is not None and _first_length(node) == rows:
            other = f"graph.{word}(x)" if word in ("mean", "sum") else "graph.mean, graph.sum or graph.max"
            return (
                f"the model takes a {word} down the rows of x, which is that of this worker's nodes alone: "
                f"{other} sees the nodes of all workers (docs/python.md)"
            )
    return None


def _terms(loss: Tensor) -> Iterator[Any]:
    """Yield the terms that a loss is a sum of, times factors; what is divided is not looked into."""
    stack = [loss.grad_fn]
    while stack:
        node = stack.pop()
        if node is None:
            continue
        yield node
        if _name(node).startswith(_PASSING):
            stack += [before for before, _ in node.next_functions]


def _nodes(loss: Tensor) -> Iterator[Any]:
    stack, seen = [loss.grad_fn], set[Any]()
    while stack and len(seen) < _MOST:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            stack += [before for before, _ in node.next_functions]


def _name(node: Any) -> str:
    return "" if node is None else str(node.name())


def _first_length(node: Any) -> int | None:
    """Return the number of rows that a node reduces; None if it reduces another dimension."""
    dims = getattr(node, "_saved_dim", ())
    if 0 not in (dims if isinstance(dims, tuple) else (dims,)):
        return None
    kept = (getattr(node, name, None) for name in ("_saved_self", "_saved_result"))
    sizes: Any = getattr(node, "_saved_self_sym_sizes", None) or next(
        (one.shape for one in kept if one is not None), ()
    )
    return int(sizes[0]) if len(sizes) > 1 else None
