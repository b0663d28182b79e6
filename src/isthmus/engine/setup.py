"""What a run begins with: the views of its graph, the model, the optimizer."""

from __future__ import annotations

from torch import nn
from torch.optim import Optimizer

from isthmus.comm import Transport
from isthmus.engine.config import DTYPES, OPTIMIZERS, TrainConfig
from isthmus.engine.views import Views
from isthmus.local import Policy
from isthmus.nn import Model
from isthmus.nn.compiled import check_not_compiled
from isthmus.partition import Book


def set_up(
    book: Book, config: TrainConfig, policy: Policy, transport: Transport, model: nn.Module | None = None
) -> tuple[Views, nn.Module, Optimizer]:
    """Every worker calls it at the same time; ``model`` replaces the one that the config describes."""
    if model is None:
        model = config.model.build(book.features, book.classes, config.seed, DTYPES[config.dtype])
    check_not_compiled(model)
    # Models of one's own do not know of sparse rows.
    views = Views.of(book, config, policy, transport, dense=not isinstance(model, Model))
    optimizer = OPTIMIZERS[config.optimizer](model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    return views, model, optimizer
