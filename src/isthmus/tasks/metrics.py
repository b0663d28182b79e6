"""Scores of node tasks over all workers' rows; the one of the validation nodes decides which weights are best."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from isthmus.comm import Transport, Where
from isthmus.errors import InputError
from isthmus.outside import imported
from isthmus.tasks.task import CLASSES, LABELS, VALUES, Task

DEFAULT = {CLASSES: "accuracy", LABELS: "micro-f1", VALUES: "r2"}
PROBE, LINKS = "probe", "link-auc"  # of embeddings
LESS_IS_BETTER = ("mse", "mae", "rmse")
Own = Callable[[Tensor, Tensor], float]  # of the user: logits and labels of all rows, more is better
Sum = Callable[[Tensor], Tensor]  # over all workers


def default_metric(task: Task, embeds: bool = False) -> str:
    """Return the usual metric of a task; ``embeds``: of embeddings, which no label has trained."""
    if embeds:
        return LINKS if task.kind == VALUES else PROBE
    return DEFAULT[task.kind]


def is_better(metric: str | Own, score: float, best: float) -> bool:
    """Return whether a score is better than the best one so far; a NaN never is."""
    return score < best if metric in LESS_IS_BETTER else score > best


def check_metric(metric: str, task: Task | None = None, embeds: bool = False) -> None:
    """Raise an InputError unless the metric is known and, with a task, suits it; import nothing."""
    if ":" in metric:
        return
    if metric not in KNOWN:
        known = ", ".join(KNOWN)
        raise InputError(f"unknown metric {metric!r}: use one of {known}, or your own as package.module:fn")
    if task is None:
        return
    if embeds != (metric in (PROBE, LINKS)):
        other = "skip-gram learns no classes: use --metric probe or link-auc" if embeds else "give --loss skip-gram"
        raise InputError(f"{metric} scores {'classes or values' if embeds else 'embeddings'}: {other}")
    if task.kind not in KNOWN[metric][0]:
        suited = [name for name, (kinds, _) in KNOWN.items() if task.kind in kinds]
        raise InputError(f"{metric} is not defined for {task.words} per node: use one of {', '.join(suited)}")
    if metric in ("roc-auc", "ap") and task.kind == CLASSES and task.width != 2:
        raise InputError(
            f"{metric} needs two classes or several labels per node, not {task.width} classes: use accuracy"
        )


def hits_sum(logits: Tensor, y: Tensor) -> Tensor:
    """Return how many of the given rows are right; a row of y [n, C] counts by the share of its labels."""
    if y.is_floating_point():
        return -(logits.double() - y).abs().mean(1).sum()
    if y.dim() == 2:
        return ((logits > 0) == (y > 0)).double().mean(1).sum()
    return (logits.argmax(1) == y).double().sum()


def score(metric: str | Own, logits: Tensor, y: Tensor, transport: Transport, where: Where) -> float:
    """Return the exact score of all workers' rows together, NaN for none; logits [n, C], y [n] or [n, C] are mine.

    A metric of the user's own, a function or ``package.module:fn``, sees all rows at once: ``fn(logits, y)``.
    """
    if isinstance(metric, str) and ":" in metric:
        metric = imported(metric, "metric")
    if callable(metric) or metric in ("roc-auc", "ap"):
        logits, y = (torch.cat(transport.all_gather(one.contiguous(), where)) for one in (logits, y))
        if not len(y):
            return float("nan")
        if callable(metric):
            return float(metric(logits, y))
        area = _roc_area if metric == "roc-auc" else _average_precision
        margin, truth = ((logits[:, 1:2] - logits[:, 0:1]) if y.dim() == 1 else logits), y.view(len(y), -1) > 0
        known = [one for c in range(margin.shape[1]) if (one := area(margin[:, c].double(), truth[:, c])) == one]
        return sum(known) / len(known) if known else float("nan")
    return KNOWN[metric][1](logits, y, lambda sums: transport.all_reduce(sums.double(), where))


def _accuracy(logits: Tensor, y: Tensor, total: Sum) -> float:
    right, rows = total(torch.stack([(logits.argmax(1) == y).sum(), y.new_tensor(len(y))])).tolist()
    return right / rows if rows else float("nan")


def _counts(logits: Tensor, y: Tensor) -> Tensor:
    """Return how often each class is said and true, said, and true, [3, C]."""
    if y.dim() == 1:
        said, classes = logits.argmax(1), logits.shape[1]
        return torch.stack([torch.bincount(one, minlength=classes) for one in (y[said == y], said, y)])
    said, truth = logits > 0, y > 0
    return torch.stack([(said & truth).sum(0), said.sum(0), truth.sum(0)])


def _micro_f1(logits: Tensor, y: Tensor, total: Sum) -> float:
    hits, said, truth = total(_counts(logits, y)).sum(1).tolist()
    return 2 * hits / (said + truth) if said + truth else float("nan")


def _macro_f1(logits: Tensor, y: Tensor, total: Sum) -> float:
    """Return the mean F1 of the classes that occur, in the labels or in what is said."""
    hits, said, truth = total(_counts(logits, y))
    occurs = said + truth > 0
    return float((2 * hits[occurs] / (said + truth)[occurs]).mean())


def _balanced_accuracy(logits: Tensor, y: Tensor, total: Sum) -> float:
    """Return the mean recall of the classes that have rows."""
    hits, _, truth = total(_counts(logits, y))
    return float((hits[truth > 0] / truth[truth > 0]).mean())


def _mse(out: Tensor, y: Tensor, total: Sum) -> float:
    return _mean((out.double() - y).square(), total)


def _rmse(out: Tensor, y: Tensor, total: Sum) -> float:
    return _mse(out, y, total) ** 0.5


def _mae(out: Tensor, y: Tensor, total: Sum) -> float:
    return _mean((out.double() - y).abs(), total)


def _mean(each: Tensor, total: Sum) -> float:
    value, number = total(torch.stack([each.sum(), each.new_tensor(each.numel())])).tolist()
    return value / number if number else float("nan")


def _r2(out: Tensor, y: Tensor, total: Sum) -> float:
    """Return 1 - Σ (out - y)² / Σ (y - mean y)², the mean over targets; NaN where y does not vary."""
    y = y.double()
    *sums, rows = total(torch.cat([y.sum(0), y.new_full((1,), len(y))])).unbind()
    mean = torch.stack(sums) / rows
    errors, spread = total(torch.stack([(out.double() - y).square().sum(0), (y - mean).square().sum(0)]))
    found = 1 - errors[spread > 0] / spread[spread > 0]
    return float(found.mean())


def _roc_area(margin: Tensor, truth: Tensor) -> float:
    """Return the area under the ROC curve, ties counted half."""
    positive, negative = int(truth.sum()), int((~truth).sum())
    if not positive or not negative:
        return float("nan")
    _, place, count = margin.unique(return_inverse=True, return_counts=True)
    last = count.cumsum(0)
    rank = (last - (count - 1).double() / 2)[place]  # the mean rank of equal scores
    return float((rank[truth].sum() - positive * (positive + 1) / 2) / (positive * negative))


def _average_precision(margin: Tensor, truth: Tensor) -> float:
    """Return Σ (R_k - R_{k-1}) P_k over the distinct scores, from the highest down."""
    if not truth.any():
        return float("nan")
    _, place = margin.unique(return_inverse=True)
    levels = int(place.max()) + 1
    hits, said = (torch.bincount(one, minlength=levels).flip(0).cumsum(0).double() for one in (place[truth], place))
    return float((torch.diff(hits, prepend=hits.new_zeros(1)) * hits / said).sum() / truth.sum())


def _gathered(*_: object) -> float:
    raise AssertionError("scores of ranks and embeddings are not computed from sums")


KNOWN: dict[str, tuple[tuple[str, ...], Callable[[Tensor, Tensor, Sum], float]]] = {
    "accuracy": ((CLASSES,), _accuracy),
    "micro-f1": ((CLASSES, LABELS), _micro_f1),
    "macro-f1": ((CLASSES, LABELS), _macro_f1),
    "balanced-accuracy": ((CLASSES,), _balanced_accuracy),
    "roc-auc": ((CLASSES, LABELS), _gathered),
    "ap": ((CLASSES, LABELS), _gathered),
    "r2": ((VALUES,), _r2),
    "mse": ((VALUES,), _mse),
    "rmse": ((VALUES,), _rmse),
    "mae": ((VALUES,), _mae),
    PROBE: ((CLASSES, LABELS), _gathered),
    LINKS: ((CLASSES, LABELS, VALUES), _gathered),
}
"""For each metric the tasks that it suits, and how it is computed from sums over all workers."""
