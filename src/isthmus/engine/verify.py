"""Compare training on the parts with one process on the whole graph, as a proof on the spot."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from isthmus.comm import Hub, Transport, Where
from isthmus.engine.agreement import check_weights
from isthmus.engine.config import TrainConfig
from isthmus.engine.plane import plane_of
from isthmus.engine.prepare import prepare
from isthmus.engine.step import predict
from isthmus.engine.stop import Stop
from isthmus.local import Policy
from isthmus.partition import Book, partition
from isthmus.partition.assemble import assemble

COMPARED = ("losses", "gradients", "logits")


@dataclass
class Trace:
    """The results of a few training steps: losses [T], gradients of the last step [W], logits [N, C]."""

    losses: Tensor
    gradients: Tensor
    logits: Tensor
    drawn_by: list[str] | None = None
    """Modules of the model that drew from torch's generator while training, as far as known; None: nothing did."""


def trace(book: Book, config: TrainConfig, transport: Transport, policy: Policy | None = None) -> Trace:
    """Train `config.steps` steps; return their trace on every worker, with the logits of all nodes in original ids."""
    policy = policy or Policy()
    views, model, optimizer = prepare(book, config, policy, transport)
    check_weights(transport, model)
    plane = plane_of(book, config, policy, views, model)
    state = torch.get_rng_state()
    losses = [plane.step(model, optimizer, step, False, Stop()) for step in range(config.steps)]
    plane.close(wait=True)
    drawn_by = None if torch.equal(state, torch.get_rng_state()) else dropouts(model)
    gradients = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    view = views.scored[-1]
    where = Where("logits", "gather", config.steps)
    own = view.graph.num_inner  # under a vertex-cut, mirrors follow
    nodes = torch.cat(transport.all_gather(view.graph.nodes[:own], where))
    logits = torch.cat(transport.all_gather(predict(model, view, config.steps)[:own], where))
    return Trace(torch.tensor(losses, dtype=torch.float64), gradients, logits[torch.argsort(nodes)], drawn_by)


def dropouts(model: nn.Module) -> list[str]:
    """Return the names of the modules that drop by torch's generator; `nn.Dropout` does not (`nn.node_dropout`)."""
    by_generator = (
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, _DropoutNd) and not isinstance(module, nn.Dropout) and module.p > 0
    )
    return [f"{name} ({type(module).__name__}, {module.p:g})" for name, module in by_generator]


def _difference(one: Tensor, other: Tensor) -> float:
    """Return the largest difference, relative to the largest value if that is above one."""
    return float((one - other).abs().max() / other.abs().max().clamp_min(1))


def verify(book: Book, config: TrainConfig, transport: Transport, policy: Policy | None = None) -> dict[str, Any]:
    """Return the largest differences between the parts and one process; worker 0 also trains the whole graph."""
    together = trace(book, config, transport, policy)
    if transport.rank != 0:
        return {}
    with tempfile.TemporaryDirectory(prefix="isthmus-verify-") as folder:
        whole = partition(assemble(book), 1, "blocks", out=Path(folder) / "whole", order="given")
        alone = trace(whole, config, Hub(1).transport(0), policy)
    differences = {name: _difference(getattr(together, name), getattr(alone, name)) for name in COMPARED}
    limit = 1e-10 if config.dtype == "float64" else 1e-4
    return {
        "graph": book.name,
        "recipe": config.recipe,
        "workers": transport.size,
        "steps": config.steps,
        "dtype": config.dtype,
        "model": config.model.model,
        "largest_difference": differences,
        "limit": limit,
        "equal": max(differences.values()) <= limit,
        "drawn_by": together.drawn_by,
    }
