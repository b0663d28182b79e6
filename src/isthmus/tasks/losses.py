"""Losses of node tasks, each as a total over rows and the weight that divides it.

The loss of one process is Σ totals / Σ weights over all workers. So a worker with few training nodes, or with nodes of
rare classes, counts as its rows do. A plain mean of the workers' means would not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from isthmus.comm import Transport, Where
from isthmus.errors import InputError
from isthmus.minibatch import PairPolicy, Pairs
from isthmus.outside import imported
from isthmus.tasks.spec import Spec
from isthmus.tasks.task import CLASSES, LABELS, VALUES, Task

DEFAULT = {CLASSES: "cross-entropy", LABELS: "bce", VALUES: "mse"}


class Terms(NamedTuple):
    """This worker's share of a loss: the total over its rows, and the weight of these rows."""

    total: Tensor
    weight: Tensor | float


@dataclass(frozen=True)
class Loss:
    """A loss as the user asked for it, and its weight over all workers' training rows where that never changes."""

    terms: Callable[..., Terms]  # of (logits, y, and how much each row counts, [n], if not 1)
    weight: float | None = None

    def share(
        self,
        logits: Tensor,
        y: Tensor | Pairs,
        transport: Transport,
        step: int,
        rows: int | None = None,
        counts: Tensor | None = None,
    ) -> Tensor:
        """Return this worker's share of the loss of all workers; the shares add up to the loss of one process.

        The rows are all training rows, or those of a batch with ``rows`` on all workers. For no rows it is a zero that
        still has a gradient: other workers wait for this one's part of the backward pass. ``counts`` [n]: by how much
        each row counts, where a node has rows on several workers; over all of them it is one.
        """
        total, weight = self.terms(logits, y, counts)
        whole: float | None = self.weight
        if rows is not None:
            whole = rows if isinstance(weight, int) else None
        if whole is not None:
            return total / whole
        mine = torch.as_tensor(weight, dtype=torch.float64).detach().reshape(1).clone()
        whole = float(transport.all_reduce(mine, Where("loss", "reduce", step, "weights")))
        return total / whole if whole else total * 0.0


def build_loss(asked: str | None, task: Task, y: Tensor, transport: Transport) -> Loss:
    """Return the loss asked for (None: the usual one of the task); y are this worker's training labels.

    Every worker calls it at the same time: class weights and the number of rows are those of all workers.
    """
    spec = Spec.read(asked or DEFAULT[task.kind], "loss")
    if ":" in spec.name:
        return Loss(_Own(imported(spec.name, "loss"), spec.name))
    check_loss(asked, task)
    options = spec.take("loss", KNOWN[spec.name][1])
    if pairs_of(asked) is not None:
        return Loss(KNOWN[spec.name][2](options))
    where = Where("loss", "reduce", 0, "weights")
    if "weights" in options:
        options["weights"] = _class_weights(options["weights"], task, y, transport, where)
    terms = KNOWN[spec.name][2](options)
    weight = y.new_zeros(1, dtype=torch.float64) + terms(_no_logits(task, y), y, None).weight
    return Loss(terms, float(transport.all_reduce(weight, where)))


def check_loss(asked: str | None, task: Task | None = None) -> None:
    """Raise an InputError unless the loss is known and, with a task, suits it; import nothing."""
    if asked is None:
        return
    spec = Spec.read(asked, "loss")
    if ":" in spec.name:
        return
    if spec.name not in KNOWN:
        raise InputError(f"unknown loss {spec.name!r}: use one of {', '.join(KNOWN)}, or your own as package.module:fn")
    tasks, known, _ = KNOWN[spec.name]
    options = spec.take("loss", known)
    pairs_of(asked)
    if not 0 <= options.get("smoothing", 0) < 1 or options.get("gamma", 0) < 0 or options.get("delta", 1) <= 0:
        raise InputError("smoothing must be at least 0 and below 1, gamma at least 0, delta above 0")
    if task is not None and task.kind not in tasks:
        suited = [name for name, (kinds, _, _) in KNOWN.items() if task.kind in kinds]
        raise InputError(f"the loss {spec.name} does not suit {task.words} per node: use one of {', '.join(suited)}")


def _cross_entropy(options: dict[str, Any]) -> Callable[..., Terms]:
    """Cross-entropy with class weights w and label smoothing; its mean divides by Σ w[y], as torch's does."""
    weights, smoothing = options["weights"], options["smoothing"]

    def terms(logits: Tensor, y: Tensor, counts: Tensor | None) -> Terms:
        w = None if weights is None else weights.to(logits)
        each = functional.cross_entropy(logits, y, w, reduction=_kind(counts), label_smoothing=smoothing)
        return Terms(_sum(each, counts), _weight(y, w, counts))

    return terms


def _focal(options: dict[str, Any]) -> Callable[..., Terms]:
    """Focal loss, (1 - p)^γ times the cross-entropy, for one class per node or for several labels."""
    weights, gamma = options["weights"], options["gamma"]

    def terms(logits: Tensor, y: Tensor, counts: Tensor | None) -> Terms:
        w = None if weights is None else weights.to(logits)
        if y.dim() == 2:
            each = functional.binary_cross_entropy_with_logits(logits, y.to(logits.dtype), reduction="none")
            each = (1 - torch.exp(-each)) ** gamma * each * (1 if w is None else w)
            return Terms(_sum(each, counts) / y.shape[1], _weight(y, None, counts))
        each = functional.cross_entropy(logits, y, reduction="none")
        each = (1 - torch.exp(-each)) ** gamma * each * (1 if w is None else w[y])
        return Terms(_sum(each, counts), _weight(y, w, counts))

    return terms


def _binary(options: dict[str, Any]) -> Callable[..., Terms]:
    """Binary cross-entropy of several labels, mean over labels; ``weights`` multiply the positive ones."""
    weights = options["weights"]

    def terms(logits: Tensor, y: Tensor, counts: Tensor | None) -> Terms:
        w = None if weights is None else weights.to(logits)
        y = y.to(logits.dtype)
        each = functional.binary_cross_entropy_with_logits(logits, y, pos_weight=w, reduction=_kind(counts))
        return Terms(_sum(each, counts) / y.shape[1], _weight(y, None, counts))

    return terms


def _of_values(by_value: Callable[..., Tensor]) -> Callable[[dict[str, Any]], Callable[..., Terms]]:
    """Return a maker of a regression loss: the sum over rows of the mean over targets."""

    def make(options: dict[str, Any]) -> Callable[..., Terms]:
        def terms(out: Tensor, y: Tensor, counts: Tensor | None) -> Terms:
            each = by_value(out, y.to(out.dtype), reduction=_kind(counts), **options)
            return Terms(_sum(each, counts) / y.shape[1], _weight(y, None, counts))

        return terms

    return make


def _skip_gram(options: dict[str, Any]) -> Callable[..., Terms]:
    """Skip-gram with negative sampling: -log σ(z_v·z_u) - Σ_q log σ(-z_v·z_q), u near v and every q far from it."""

    def terms(z: Tensor, pairs: Pairs, counts: Tensor | None) -> Terms:
        seeds = z[: len(pairs)]
        near = functional.logsigmoid((seeds * z[pairs.positive]).sum(1))
        far = functional.logsigmoid(-(seeds[:, None] * z[pairs.negative]).sum(2)).sum(1)
        return Terms(-(near + far).sum(), len(pairs))

    return terms


def pairs_of(loss: str | None) -> PairPolicy | None:
    """Return how the pairs of an unsupervised loss are drawn; None for a loss of labels."""
    if loss is None or not loss.startswith("skip-gram"):
        return None
    spec = Spec.read(loss, "loss")
    return PairPolicy(**spec.take("loss", KNOWN["skip-gram"][1])) if spec.name == "skip-gram" else None


def output_width(loss: str | None, task: Task, hidden: int) -> int:
    """Return the width of a model's output: of embeddings that of its hidden rows, else a column per class."""
    return task.width if pairs_of(loss) is None else hidden


KNOWN: dict[str, tuple[tuple[str, ...], dict[str, Any], Callable]] = {
    "cross-entropy": ((CLASSES,), {"weights": None, "smoothing": 0.0}, _cross_entropy),
    "focal": ((CLASSES, LABELS), {"weights": None, "gamma": 2.0}, _focal),
    "bce": ((LABELS,), {"weights": None}, _binary),
    "mse": ((VALUES,), {}, _of_values(functional.mse_loss)),
    "mae": ((VALUES,), {}, _of_values(functional.l1_loss)),
    "huber": ((VALUES,), {"delta": 1.0}, _of_values(functional.huber_loss)),
    "skip-gram": ((CLASSES, LABELS, VALUES), asdict(PairPolicy()), _skip_gram),
}
"""For each loss the tasks that it suits, its options with their defaults, and what makes it of them."""


@dataclass
class _Own:
    """A user's loss ``fn(logits, y)``: one value per row, the mean over rows, or (total, weight)."""

    function: Callable[..., Any]
    name: str
    checked: bool = False

    def __call__(self, logits: Tensor, y: Tensor, counts: Tensor | None = None) -> Terms:
        if not len(y):
            return Terms(logits.sum() * 0.0, 0.0)
        found = self.function(logits, y)
        if counts is not None and (isinstance(found, tuple) or not found.dim()):
            raise InputError(f"with this recipe rows count differently: let {self.name} return one value per row")
        if isinstance(found, tuple):
            total, weight = found
            if isinstance(weight, Tensor) and weight.requires_grad:
                raise InputError(f"the weight that {self.name} returns has a gradient: return weight.detach()")
            return Terms(total, weight)
        if found.dim():
            if len(found) != len(y):
                raise InputError(f"{self.name} returns {list(found.shape)} for {len(y)} rows: return one value per row")
            return Terms(_sum(found, counts) / (found.numel() // len(y)), _weight(y, None, counts))
        if not self.checked:
            self._check_mean(logits.detach(), y, float(found.detach()))
        return Terms(found * len(y), len(y))

    @torch.no_grad()
    def _check_mean(self, logits: Tensor, y: Tensor, found: float) -> None:
        """Refuse a scalar that is not a mean over rows: a sum, or a mean that divides by weights."""
        self.checked, half = True, len(y) // 2
        if half:
            first, second = (float(self.function(logits[at], y[at])) for at in (slice(half), slice(half, None)))
            mean = (first * half + second * (len(y) - half)) / len(y)
            if abs(mean - found) > 1e-4 * max(abs(mean), abs(found)):
                raise InputError(
                    f"{self.name} does not return the mean over rows: return one value per row (reduction='none'), or "
                    "(total, weight) if it divides by something else than their number"
                )


def _class_weights(asked: Any, task: Task, y: Tensor, transport: Transport, where: Where) -> Tensor | None:
    """Return the weights of the classes: as given (1/2.5/…), or balanced, so that all classes count the same."""
    if asked is None:
        return None
    if asked == "balanced":
        if task.kind == LABELS:
            positive = transport.all_reduce(
                torch.cat([y.double().sum(0), torch.full((1,), float(len(y)), dtype=torch.float64, device=y.device)]),
                where,
            )
            return (positive[-1] - positive[:-1]) / positive[:-1].clamp_min(1)
        counts = transport.all_reduce(torch.bincount(y, minlength=task.width).double(), where)
        return counts.sum() / ((counts > 0).sum() * counts.clamp_min(1))
    try:
        weights = torch.tensor([float(one) for one in str(asked).split("/")], dtype=torch.float64, device=y.device)
    except ValueError:
        raise InputError(f"weights={asked}: give balanced, or one number per class, as in weights=1/2.5/1") from None
    if len(weights) != task.width or not bool((weights >= 0).all()):
        raise InputError(f"weights={asked} are {len(weights)} numbers: give {task.width}, none below 0")
    return weights


def _no_logits(task: Task, y: Tensor) -> Tensor:
    return torch.zeros(len(y), task.width, dtype=torch.float64, device=y.device)


def _kind(counts: Tensor | None) -> str:
    """Return the reduction to ask of torch: the sum, unless rows count differently."""
    return "sum" if counts is None else "none"


def _sum(each: Tensor, counts: Tensor | None) -> Tensor:
    """Return the sum over rows [n, …], each as often as it counts."""
    return each.sum() if counts is None else (each.flatten(1).sum(1) if each.dim() > 1 else each) @ counts.to(each)


def _weight(y: Tensor, w: Tensor | None, counts: Tensor | None) -> Tensor | int:
    """Return the weight of rows with labels y, given those of the classes: their number, if all count the same."""
    if counts is None:
        return len(y) if w is None else w[y].sum()
    return counts.sum() if w is None else w[y] @ counts.to(w)
