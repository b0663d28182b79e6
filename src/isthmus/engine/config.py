"""The options of a training run, all of which are stored in the run's config.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from isthmus.errors import InputError
from isthmus.nn import ModelConfig
from isthmus.tasks.node_classes import METRICS

OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
DTYPES = {"float32": torch.float32, "float64": torch.float64}
ROWS_DTYPES = {"bf16": torch.bfloat16}
FEATURES = ("raw", "rows", "standard")


@dataclass(frozen=True)
class TrainConfig:
    """The options of one training run, except the graph and the number of workers."""

    model: ModelConfig = field(default_factory=ModelConfig)
    recipe: str = "exact"
    options: dict[str, Any] = field(default_factory=dict)
    """The recipe's own options, as given by ``--set name=value``."""
    optimizer: str = "adam"
    lr: float = 0.01
    weight_decay: float = 0.0
    steps: int = 200
    eval_every: int = 10
    patience: int = 0
    """Evaluations without a better validation score after which training stops; 0 never."""
    checkpoint_every: int = 0
    """Steps between checkpoints; 0 means at every evaluation."""
    split: int = 0
    seed: int = 0
    dtype: str = "float32"
    rows_dtype: str | None = None
    """``bf16``: rows are read and sent in bf16 and summed in float32."""
    features: str = "raw"
    """``rows`` divides each feature row by its sum; ``standard`` gives each column mean 0 and deviation 1."""
    inductive: bool = False
    """Train on the graph of the training nodes alone; validate on training and validation nodes; test on all."""
    probe_every: int = 0
    """Steps between measurements of how far stale or coded rows are from fresh ones (PipeGCN fig. 5); 0 never."""
    metric: str | None = None
    """accuracy, micro-f1 or roc-auc; None chooses accuracy, or micro-f1 for multi-label graphs."""

    def __post_init__(self) -> None:
        for name, known in (
            ("optimizer", OPTIMIZERS),
            ("dtype", DTYPES),
            ("features", FEATURES),
            ("rows_dtype", (None, *ROWS_DTYPES)),
            ("metric", (None, *METRICS)),
        ):
            if getattr(self, name) not in known:
                names = ", ".join(str(value) for value in known if value)
                raise InputError(f"unknown {name.replace('_', '-')} {getattr(self, name)!r}: use one of {names}")
        at_least = {"steps": 1, "eval_every": 1, "patience": 0, "checkpoint_every": 0, "split": 0, "probe_every": 0}
        for name, least in at_least.items():
            if getattr(self, name) < least:
                raise InputError(f"{name.replace('_', '-')} must be at least {least}, not {getattr(self, name)}")
        if not (0 < self.lr < math.inf and 0 <= self.weight_decay < math.inf):
            raise InputError("lr must be above 0 and weight-decay at least 0, and both finite")
        if self.rows_dtype and self.dtype != "float32":
            raise InputError("bf16 rows are summed in float32: use --dtype float32, or leave --rows-dtype out")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> TrainConfig:
        return TrainConfig(**{**values, "model": ModelConfig(**values["model"])})


def flat(options: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Flatten nested options: {"model": {"hidden": 8}} → {"model.hidden": 8}."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        found |= flat(value, f"{before}{name}.") if isinstance(value, dict) else {before + name: value}
    return found


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describe in words the differences between two sets of options.

    An option that only one of them has, such as one of another recipe, is named only if nothing else differs.
    """
    one, other = flat(before), flat(now)
    differ = [name for name in {**one, **other} if name not in one or name not in other or one[name] != other[name]]
    shared = [name for name in differ if name in one and name in other]
    return [f"{name} was {_word(one, name)} and is {_word(other, name)} now" for name in shared or differ]


def _word(options: Mapping[str, Any], name: str) -> str:
    return str(options.get(name, "not there"))
