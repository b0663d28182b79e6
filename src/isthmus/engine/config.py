"""The options of a training run, all of which are stored in the run's config.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from isthmus.engine.learning import check_learning
from isthmus.errors import InputError
from isthmus.minibatch import ROWS, STRUCTURES, WAYS, BatchPolicy, read_fanouts
from isthmus.nn import ModelConfig
from isthmus.options import check_options, option
from isthmus.partition import Book
from isthmus.tasks import losses, metrics

DTYPES = {"float32": torch.float32, "float64": torch.float64}
ROWS_DTYPES = {"bf16": torch.bfloat16}
CUTS = ("edge", "cover", "vertex")
FEATURES = ("raw", "rows", "standard")
EVAL_EVERY = 10
AUTO = "auto"
_ANY, _MOST = "train verify Worker", "train compare"
_BATCHES = "train compare verify plan"
_NAME_OR_FUNCTION = "str | Callable[..., Any] | None"
_SETTINGS = "Mapping[str, Any] | Iterable[str] | None"


@dataclass(frozen=True)
class TrainConfig:
    """The options of one training run, except the graph and the number of workers."""

    model: ModelConfig = field(default_factory=ModelConfig)
    recipe: str = option(
        "exact", "How rows are exchanged: see `isthmus recipes`; or package.module:NAME.", "Recipe", _ANY
    )
    options: dict[str, Any] = option(
        dict, "A recipe's own option, name=value.", "Recipe", _ANY, name="set", accepts=_SETTINGS
    )
    probe_every: int = option(
        0, "Steps between measurements of rows' and gradients' error; 0: never.", "Recipe", "train", least=0
    )
    """The error is ‖held − fresh‖ / ‖fresh‖ of stale or coded rows (PipeGCN fig. 5)."""
    lr: float = option(0.01, "Learning rate.", "Learning", "train compare")
    weight_decay: float = option(0.0, "L2 penalty.", "Learning", "train compare")
    optimizer: str = option(
        "adam", "adam, adamw, sgd,momentum=0.9 or any other of torch.optim.", "Learning", "train compare plan"
    )
    scheduler: str | None = option(
        None,
        "Of the learning rate: cosine, linear, step or plateau, as in cosine,warmup=10.",
        "Learning",
        "train compare",
    )
    """Options follow by comma; every scheduler takes ``warmup``, steps in which the rate rises to --lr."""
    clip: float = option(0.0, "Norm that gradients are clipped to; 0: never.", "Learning", "train compare", least=0)
    accumulate: int = option(1, "Passes whose gradients are averaged in a step.", "Learning", "train compare", least=1)
    """Each pass has its own dropout, and its own graph where the recipe draws one."""
    ema: float = option(
        0.0,
        "Decay of an average of the weights that is evaluated.",
        "Learning",
        "train compare",
        least=0,
        below=1,
    )
    loss: str | None = option(
        None,
        "cross-entropy,smoothing=.1; focal; skip-gram; package.module:fn.",
        "Learning",
        "train compare",
        accepts=_NAME_OR_FUNCTION,
    )
    """Also bce for several labels; mse, mae and huber for regression. None: the usual one of the graph's labels.
    skip-gram learns embeddings without labels, by mini-batches: skip-gram,walk=1,negatives=1,by=uniform."""
    init: str | None = option(None, "Start from the best weights of this run.", "Learning", "train")
    steps: int = option(200, "Weight updates.", "Learning", "train compare verify", least=1)
    epochs: int | None = option(None, "Passes over the training nodes, in place of steps.", "Learning", _MOST, least=1)
    """A step of full-graph training is one."""
    eval_every: int = option(
        0, "Steps between evaluations; 0: 10, or an epoch of mini-batches.", "Learning", "train compare", least=0
    )
    patience: int = option(
        0, "Evaluations without progress before stopping; 0: never.", "Learning", "train compare", least=0
    )
    split: int = option(0, "Which of the graph's splits.", "Learning", "train compare plan Worker", least=0)
    features: str = option(
        "raw",
        "raw, rows (each row divided by its sum) or standard.",
        "Learning",
        "train compare plan Worker",
        choices=FEATURES,
    )
    """``standard`` gives each column mean 0 and deviation 1."""
    features_on: str = option(
        "device",
        "{choices}; host: fetched by row, for small devices.",
        "Learning",
        "train compare plan",
        choices=("device", "host"),
    )
    """For the models gcn, sage and gat. On the CPU both are the same."""
    compile: str | None = option(
        None, "Compile by this backend of torch.compile, such as inductor.", "Learning", "train Worker"
    )
    """Of torch.compile; None: the model is called as it is."""
    edge_weights: str = option(
        "auto",
        "auto: an edge's one attribute is its weight; none: all edges count the same.",
        "Learning",
        "train compare plan verify Worker",
        choices=("auto", "none"),
    )
    inductive: bool = option(False, "Train on the training nodes' graph only.", "Learning", "train compare plan Worker")
    """Validation sees training and validation nodes, the test all."""
    metric: str | None = option(
        None,
        "accuracy, macro-f1, roc-auc, r2, probe, … or package.module:fn.",
        "Learning",
        "train compare Worker",
        accepts=_NAME_OR_FUNCTION,
    )
    """None: accuracy; micro-f1 for several labels per node; r2 for regression. Also micro-f1, balanced-accuracy, mse,
    rmse, mae. Of embeddings (skip-gram): probe, a logistic regression on the training nodes, or link-auc, on edges that
    --hold-out kept back."""
    dtype: str = option("float32", "{choices}.", "Learning", "train compare plan verify Worker", choices=DTYPES)
    rows_dtype: str | None = option(
        None, "bf16: read and send rows in bf16.", "Learning", "train compare plan Worker", choices=ROWS_DTYPES
    )
    """The rows are still summed in float32."""
    cut: str | None = option(
        None, "Where edges live: {choices}; default: the recipe's.", "Cutting", "train", choices=CUTS
    )
    """None: cover where the recipe sends rows as they are and that spares enough, else as the parts were written."""
    hosts: int | None = option(
        None, "Hosts of the workers, in equal blocks; default: found out.", "Cutting", "train Worker", least=1
    )
    """Between two hosts a row crosses once, and sums of one host's workers are added before they leave it; where hosts
    are found out, if that spares at least 1,000 rows a host and exchange. 1: every worker sends to every other."""
    checkpoint_every: int = option(0, "Steps between checkpoints; 0: at evaluations.", "Run", "train", least=0)
    batch_size: int | None = option(
        None, "Seed nodes of a step, over all workers; default 1000.", "Mini-batches", _BATCHES, least=1
    )
    fanout: str | None = option(
        None,
        "Neighbours drawn per hop, seed nodes first, -1: all; default 15,10,5.",
        "Mini-batches",
        _BATCHES,
        accepts="str | Sequence[int] | None",
    )
    eval_fanout: str | None = option(
        None,
        "Evaluate by neighbours drawn so; default: by all.",
        "Mini-batches",
        "train compare",
        accepts="str | Sequence[int] | None",
    )
    """For graphs whose hidden rows do not fit. Drawn with the run's seed, the same at every evaluation and for any
    number of workers."""
    batch: str | None = option(None, "{choices} (default).", "Mini-batches", _BATCHES, choices=(*WAYS, AUTO))
    """apart: each worker expands its own seed nodes. together: every node of the joint batch is computed once, by its
    owner. auto: together where a norm over all nodes would count nodes several times, else apart."""
    structure: str | None = option(
        None, "Edges of other parts: {choices}; default here.", "Mini-batches", _BATCHES, choices=STRUCTURES
    )
    """here: from the files of all parts. owner: their owners are asked."""
    rows: str | None = option(
        None, "Feature rows of other parts: {choices}; default host.", "Mini-batches", _BATCHES, choices=ROWS
    )
    """host: from the files of parts whose workers are on this host; the others are asked. here: from the files of every
    part that this machine can read. owner: their owners are always asked."""
    seed: int = option(0, "For every random draw.", "Other", "train plan verify Worker")

    def __post_init__(self) -> None:
        check_options(self)
        for name in ("fanout", "eval_fanout"):
            value = getattr(self, name)
            if isinstance(value, list | tuple):
                object.__setattr__(self, name, ",".join(map(str, value)))
            if value is not None:
                read_fanouts(getattr(self, name))
        check_learning(self.optimizer, self.scheduler)
        losses.check_loss(self.loss)
        if self.metric is not None:
            metrics.check_metric(self.metric)
        if not (0 < self.lr < math.inf and 0 <= self.weight_decay < math.inf):
            raise InputError("lr must be above 0 and weight-decay at least 0, and both finite")
        if self.rows_dtype and self.dtype != "float32":
            raise InputError("bf16 rows are summed in float32: use --dtype float32, or leave --rows-dtype out")

    @property
    def fanouts(self) -> tuple[int, ...]:
        """The fanouts as numbers; by default those of GraphSAGE for as many layers as the model has."""
        if self.fanout is None:
            return BatchPolicy().usual_fanouts(self.model.layers)
        return read_fanouts(self.fanout)

    def settled(self, book: Book, batches: BatchPolicy | None) -> TrainConfig:
        """Return the config with everything filled in that follows from the graph, and from how batches are drawn."""
        labelled = book.train[self.split] if self.split < len(book.train) else 0  # refused later
        labelled = labelled if losses.pairs_of(self.loss) is None else book.nodes
        epoch = 1 if batches is None else batches.steps_per_epoch(book.nodes, labelled, self.batch_size)
        steps = self.steps if self.epochs is None else self.epochs * max(epoch, 1)
        every = self.eval_every or (max(epoch, 1) if batches else EVAL_EVERY)
        return replace(self, steps=steps, eval_every=every)

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
