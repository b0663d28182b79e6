"""Node classification: the loss, and the score that decides which weights are best."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from isthmus.comm import Transport, Where
from isthmus.errors import InputError

METRICS = ("accuracy", "micro-f1", "roc-auc")


def default_metric(multilabel: bool) -> str:
    return "micro-f1" if multilabel else "accuracy"


def check_metric(metric: str, multilabel: bool, classes: int) -> None:
    """Raise an InputError unless the metric fits the labels."""
    if metric not in METRICS:
        raise InputError(f"unknown metric {metric!r}: use one of {', '.join(METRICS)}")
    if metric == "accuracy" and multilabel:
        raise InputError("accuracy is not defined for multi-label nodes: use micro-f1 or roc-auc")
    if metric == "roc-auc" and not multilabel and classes != 2:
        raise InputError(f"roc-auc needs two classes or several labels per node, not {classes} classes: use accuracy")


def loss_sum(logits: Tensor, y: Tensor) -> Tensor:
    """Return the loss summed over rows: cross-entropy for y [n], binary cross-entropy for y [n, C] (mean over C).

    It is a sum so that workers with few training nodes weigh little; the caller divides by the global count. For no
    rows it is a zero that still has a gradient: the other workers wait for this one's part of the backward pass.
    """
    if y.dim() == 2:
        return functional.binary_cross_entropy_with_logits(logits, y.to(logits.dtype), reduction="sum") / y.shape[1]
    return functional.cross_entropy(logits, y, reduction="sum")


def hits_sum(logits: Tensor, y: Tensor) -> Tensor:
    """Return how many of the given rows are right; a row of y [n, C] counts by the share of its labels."""
    if y.dim() == 2:
        return ((logits > 0) == (y > 0)).double().mean(1).sum()
    return (logits.argmax(1) == y).double().sum()


def score(metric: str, logits: Tensor, y: Tensor, transport: Transport, where: Where) -> float:
    """Return the exact score of all workers' rows together, NaN for none; logits [n, C], y [n] or [n, C] are mine."""
    if metric == "roc-auc":
        return _roc_auc(logits, y, transport, where)
    if metric == "accuracy":
        hits = (logits.argmax(1) == y).sum().double()
        counts = torch.stack([hits, torch.full_like(hits, len(y))])
    else:
        counts = _f1_counts(logits, y)
    top, bottom = transport.all_reduce(counts, where).tolist()
    return top / bottom if bottom else float("nan")


def _f1_counts(logits: Tensor, y: Tensor) -> Tensor:
    """Return 2 TP and 2 TP + FP + FN; their quotient over all workers is the micro-F1."""
    if y.dim() == 1:
        said = functional.one_hot(logits.argmax(1), logits.shape[1]).bool()
        truth = functional.one_hot(y, logits.shape[1]).bool()
    else:
        said, truth = logits > 0, y > 0
    return torch.stack([2 * (said & truth).sum(), said.sum() + truth.sum()]).double()


def _roc_auc(logits: Tensor, y: Tensor, transport: Transport, where: Where) -> float:
    """Return the area under the ROC curve, averaged over labels, ties counted half. Only scores and labels travel."""
    margin = (logits[:, 1:2] - logits[:, 0:1]) if y.dim() == 1 else logits
    truth = y.view(len(y), -1)
    margin = torch.cat(transport.all_gather(margin.double().contiguous(), where))
    truth = torch.cat(transport.all_gather(truth.to(torch.uint8).contiguous(), where)).bool()
    areas = [_area(margin[:, c], truth[:, c]) for c in range(margin.shape[1])]
    known = [area for area in areas if area == area]
    return sum(known) / len(known) if known else float("nan")


def _area(margin: Tensor, truth: Tensor) -> float:
    positive, negative = int(truth.sum()), int((~truth).sum())
    if not positive or not negative:
        return float("nan")
    _, place, count = margin.unique(return_inverse=True, return_counts=True)
    last = count.cumsum(0)
    rank = (last - (count - 1) / 2.0)[place]  # the mean rank of equal scores
    return float((rank[truth].sum() - positive * (positive + 1) / 2) / (positive * negative))
