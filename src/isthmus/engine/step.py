"""One full-graph step: forward, loss, backward, sum of the gradients, update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from isthmus.comm import Transport, Where, sum_coded
from isthmus.engine.stop import Stop
from isthmus.engine.views import View, Views
from isthmus.errors import InputError
from isthmus.local import LocalGraph
from isthmus.tasks.node_classes import loss_sum, score

Call = Callable[[LocalGraph, Any], Tensor]


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    view: View,
    labelled: int,
    step: int,
    probe: bool = False,
    stop: Stop | None = None,
) -> float:
    """One update of the weights; returns the loss, the same on every worker.

    Loss = sum over this worker's training rows / `labelled`, the number of training rows of *all* workers; gradients
    are summed over workers, so the update is that of one process holding the whole graph. With ``probe``, rows that the
    recipe gives are compared with fresh ones on the way. ``stop`` is agreed upon on the way, too.
    """
    model.train()
    optimizer.zero_grad(set_to_none=True)
    view.graph.begin(step, probe=probe, declared=True)
    logits, mask = model(view.graph, view.data.x), view.data.masks["train"]
    loss = loss_sum(_of_training_nodes(logits, mask, view), view.data.y[mask]) / labelled
    loss.backward()
    total = sum_gradients(model, loss.detach(), step, view.graph, stop or Stop())
    optimizer.step()
    return total


def _of_training_nodes(logits: Tensor, mask: Tensor, view: View) -> Tensor:
    """A model gives all rows, or only those that are read (`LocalGraph.read`), of as many columns as classes."""
    if not isinstance(logits, Tensor):
        raise InputError(f"the model gives a {type(logits).__name__}: it has to give one tensor, [nodes, classes]")
    rows, read = len(mask), view.graph.read
    given, few = list(logits.shape), "" if read is None else f", or [{len(read)}, {view.classes}] of graph.read"
    if given == [rows, view.classes]:
        return logits[mask]
    if read is None or given != [len(read), view.classes]:
        raise InputError(f"the model gives {given}: it has to give [{rows}, {view.classes}], a row for each node{few}")
    return logits


def sum_gradients(model: nn.Module, loss: Tensor, step: int, graph: LocalGraph, stop: Stop) -> float:
    """Sums loss and gradients over the workers in one message, which also says whether one of them is to stop."""
    transport, encode = graph.transport, graph.policy.weights
    if transport.size == 1:
        stop.agreed = stop.asked
        return float(loss)
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    # What no worker's loss reads has no gradient in one process either, which some optimizers tell from zero.
    about = [float(stop.asked), *(float(p.grad is not None) for p in parameters)]
    place, where = 1 + len(about), Where("weights", "reduce", step, "weights")
    graph.schedule.ask(step)
    flat = torch.cat([loss.view(1), loss.new_tensor(about), *(gradient.flatten() for gradient in gradients)])
    if encode.lossless:
        transport.all_reduce(flat, where)
    else:
        sum_coded(flat[place:], flat[:place], encode, transport, where, graph.channels.seed)
    transport.release()
    total, asked, *read = flat[:place].tolist()
    stop.agreed = bool(asked)
    for parameter, gradient, somewhere in zip(parameters, gradients, read, strict=True):
        parameter.grad = flat[place : place + gradient.numel()].view_as(gradient) if somewhere else None
        place += gradient.numel()
    return total


@torch.no_grad()
def predict(model: nn.Module, view: View, step: int, call: Call | None = None) -> Tensor:
    """Logits of this worker's nodes, [n, C]: ``model(graph, x)``, or what ``call`` makes of (graph, x) with it."""
    model.eval()
    view.graph.begin(step, training=False)
    return (call or model)(view.graph, view.data.x)


def evaluate(
    model: nn.Module, views: Views, metric: str, step: int, transport: Transport, call: Call | None = None
) -> dict[str, float]:
    """The score of every split over all workers' nodes; no process ever sees more than its part."""
    scores = {}
    for view in views.scored:
        logits = predict(model, view, step, call)
        for split in view.scores:
            mask = view.data.masks[split]
            where = Where(f"score of {split}", "reduce", step, "weights")
            scores[split] = score(metric, logits[mask], view.data.y[mask], transport, where)
    return scores
