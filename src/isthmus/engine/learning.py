"""The update of a step: learning rate, clipping of gradients, the optimizer, an average of the weights."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from isthmus.engine.progress import Progress
from isthmus.errors import InputError
from isthmus.tasks.spec import Spec

_APART = ("lbfgs", "sparseadam")  # need a closure, or sparse gradients
OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
OPTIMIZERS |= {
    name.lower(): kind
    for name, kind in vars(torch.optim).items()
    if inspect.isclass(kind) and issubclass(kind, Optimizer) and kind is not Optimizer and name.lower() not in _APART
}
SCHEDULERS: dict[str, dict[str, Any]] = {
    "constant": {"warmup": 0},
    "linear": {"warmup": 0, "floor": 0.0},
    "cosine": {"warmup": 0, "floor": 0.0},
    "step": {"warmup": 0, "every": 50, "gamma": 0.5},
    "plateau": {"warmup": 0, "patience": 5, "factor": 0.5, "floor": 0.0},
}
"""The options of each scheduler, with their defaults. ``floor`` is a share of --lr."""


def check_learning(optimizer: str, scheduler: str | None) -> None:
    """Raise an InputError unless optimizer and scheduler are known and their options make sense."""
    spec = Spec.read(optimizer, "optimizer")
    if spec.name.lower() not in OPTIMIZERS:
        raise InputError(f"unknown optimizer {spec.name!r}: use one of {', '.join(OPTIMIZERS)}")
    takes = inspect.signature(OPTIMIZERS[spec.name.lower()]).parameters
    for name in spec.options:
        if name not in takes or name in ("params", "lr", "weight_decay"):
            raise InputError(
                f"--optimizer {spec.name} has no option {name!r}: it takes {', '.join([*takes][1:])}, of which lr and "
                "weight_decay by --lr and --weight-decay"
            )
    if scheduler is not None:
        read_scheduler(scheduler)


def read_scheduler(asked: str) -> Spec:
    """Return a scheduler's name and all its options."""
    spec = Spec.read(asked, "scheduler")
    if spec.name not in SCHEDULERS:
        raise InputError(f"unknown scheduler {spec.name!r}: use one of {', '.join(SCHEDULERS)}")
    options = spec.take("scheduler", SCHEDULERS[spec.name])
    wrong = [name for name, value in options.items() if value < 0 or (name == "every" and value < 1)]
    if wrong:
        raise InputError(f"--scheduler {asked}: {wrong[0]} must be at least {1 if wrong[0] == 'every' else 0}")
    return Spec(spec.name, options)


def _plain(kind: type[Optimizer]) -> type[Optimizer]:
    """Return one of torch's optimizers without what torch wraps around its methods for its compiler.

    The first call of such a wrapper imports the compiler, which takes as long as everything else that a worker imports.
    """
    methods = ("add_param_group", "zero_grad", "state_dict", "load_state_dict", "step")
    bare = {name: inspect.unwrap(getattr(kind, name)) for name in methods}
    return type(kind.__name__, (kind,), {**bare, "step": torch.no_grad()(bare["step"])})


def build_optimizer(asked: str, lr: float, weight_decay: float, model: nn.Module) -> Optimizer:
    """Return one of torch's optimizers for the weights of a model."""
    spec = Spec.read(asked, "optimizer")
    kind = OPTIMIZERS[spec.name.lower()]
    options = {"lr": lr, "weight_decay": weight_decay, **spec.options}
    if "weight_decay" not in inspect.signature(kind).parameters:
        if weight_decay:
            raise InputError(f"{spec.name} has no weight decay: leave --weight-decay out")
        del options["weight_decay"]
    try:
        return _plain(kind)(model.parameters(), **options)  # type: ignore[call-arg]
    except (TypeError, ValueError) as error:
        raise InputError(f"--optimizer {asked} is refused by torch ({error}): correct it, or take another") from None


class Learner:
    """An optimizer with what surrounds its update; the step and checkpoints use it as they would an optimizer."""

    def __init__(self, config: Any, model: nn.Module):
        self.optimizer = build_optimizer(config.optimizer, config.lr, config.weight_decay, model)
        self.scheduler = None if config.scheduler is None else read_scheduler(config.scheduler)
        self.lr, self.steps, self.clip, self.decay = config.lr, config.steps, config.clip, config.ema
        self.model = model
        self.averages: dict[str, Tensor] = {}  # of the weights, by name; empty before the first update

    def begin(self, progress: Progress) -> None:
        """Set the learning rate of the step that begins."""
        if self.scheduler is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = self.lr * factor(self.scheduler, progress, self.steps)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)

    def step(self) -> None:
        """Update the weights by the gradients of all workers, and their average."""
        if self.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        if self.decay:
            self._average()

    @torch.no_grad()
    def _average(self) -> None:
        weights = {name: one.detach() for name, one in self.model.named_parameters()}
        if not self.averages:
            self.averages = {name: one.clone() for name, one in weights.items()}
        for name, one in self.averages.items():
            one.lerp_(weights[name], 1 - self.decay)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Put the averages in place of the weights, to evaluate and to keep them."""
        weights = dict(self.model.named_parameters())
        before = {name: weights[name].data for name in self.averages}
        for name, one in self.averages.items():
            weights[name].data = one
        try:
            yield
        finally:
            for name, one in before.items():
                weights[name].data = one

    def judged(self, progress: Progress, better: bool) -> None:
        """Take note of an evaluation: a plateau's scheduler lowers the rate after several without a better score."""
        if self.scheduler is None or self.scheduler.name != "plateau":
            return
        options = self.scheduler.options
        progress.stalled = 0 if better else progress.stalled + 1
        if progress.stalled > options["patience"]:
            progress.rate, progress.stalled = max(progress.rate * options["factor"], options["floor"]), 0

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.optimizer.param_groups

    def state_dict(self) -> dict[str, Any]:
        return {**self.optimizer.state_dict(), "averages": self.averages}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        averages = state.pop("averages", {})
        self.optimizer.load_state_dict(state)
        weights = dict(self.model.named_parameters())
        if any(name not in weights or weights[name].shape != one.shape for name, one in averages.items()):
            raise ValueError("averages of other weights")
        self.averages = {name: one.to(weights[name]) for name, one in averages.items()}


def factor(scheduler: Spec, progress: Progress, steps: int) -> float:
    """Return the learning rate of a step as a share of --lr: a function of the step or, by plateau, of evaluations."""
    options, step = scheduler.options, progress.step
    warmup = int(options["warmup"])
    if step < warmup:
        return (step + 1) / (warmup + 1)
    done = min((step - warmup) / max(steps - warmup, 1), 1.0)
    match scheduler.name:
        case "linear":
            return options["floor"] + (1 - options["floor"]) * (1 - done)
        case "cosine":
            return options["floor"] + (1 - options["floor"]) * (1 + math.cos(math.pi * done)) / 2
        case "step":
            return options["gamma"] ** ((step - warmup) // options["every"])
        case "plateau":
            return progress.rate
    return 1.0
