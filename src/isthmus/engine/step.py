"""Run one full-graph step: forward, loss, backward, sum of the gradients, update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from isthmus.comm import Transport, Where, sum_coded
from isthmus.engine.gradient_error import can_measure, gradient_error
from isthmus.engine.gradient_sums import GradientSums
from isthmus.engine.judge import Judge
from isthmus.engine.learning import Learner
from isthmus.engine.prepare import View, Views
from isthmus.engine.stop import Stop
from isthmus.errors import InputError
from isthmus.local import LocalGraph, Runtime
from isthmus.tasks.metrics import hits_sum

Call = Callable[[LocalGraph, Any], Tensor]


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Learner,
    view: View,
    labelled: int,
    step: int,
    probe: bool = False,
    stop: Stop | None = None,
) -> float:
    """Update the weights once; return the loss, which is the same on every worker.

    Every worker has its share of the loss (`tasks.losses`), and gradients are summed over workers, so the update is
    that of one process with the whole graph; ``labelled`` is the number of training rows of *all* workers. With
    ``probe``, the rows that the recipe delivers are compared with fresh ones. The workers also agree on ``stop``.
    """
    model.train()
    optimizer.zero_grad(set_to_none=True)
    run, losses, told = view.graph.runtime, list[Tensor](), dict[str, float]()
    passes = range(step * view.passes, (step + 1) * view.passes)
    for pass_ in passes:
        loss, rows, y = _pass(model, view, pass_, probe=probe and not losses)
        losses.append(loss)
        if len(losses) < view.passes:  # the last pass does this with the gradients
            run.schedule.ask(pass_)
            run.transport.release()
    if run.policy.observes:
        told = {"train": float(hits_sum(rows.detach(), y)) / labelled}
    if run.policy.caches:
        told |= run.channels.shares()
    total = sum_gradients(model, torch.stack(losses).detach().sum(), pass_, run, stop or Stop(), told)
    run.gradient_error = None
    if probe and view.learnt is None and can_measure(run):
        exactly = (partial(_pass, model, view, pass_, beside=True) for pass_ in passes)
        run.gradient_error = gradient_error(model, run, step, exactly)
    optimizer.step()
    return total


def _pass(
    model: nn.Module, view: View, pass_: int, probe: bool = False, beside: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Run forward and backward once; return this worker's share of the loss, and the rows and labels it is about."""
    run = view.graph.runtime
    run.begin(pass_, probe=probe, declared=True, beside=beside)
    logits, mask = model(view.graph, view.data.x), view.data.masks["train"]
    rows, y = _of_training_nodes(logits, mask, view), view.data.y[mask]
    loss = view.loss.share(rows, y, run.transport, pass_, counts=view.counts) / view.passes
    run.backward(loss)
    return loss, rows, y


def _of_training_nodes(logits: Tensor, mask: Tensor, view: View) -> Tensor:
    """Return the logits of the training nodes, from a model that gives all rows or only those of `LocalGraph.read`."""
    if not isinstance(logits, Tensor):
        raise InputError(f"the model gives a {type(logits).__name__}: it has to give one tensor, [nodes, classes]")
    rows, read = len(mask), view.graph.read
    given, few = list(logits.shape), "" if read is None else f", or [{len(read)}, {view.classes}] of graph.read"
    if given == [rows, view.classes]:
        return logits[mask]
    if read is None or given != [len(read), view.classes]:
        raise InputError(f"the model gives {given}: it has to give [{rows}, {view.classes}], a row for each node{few}")
    return logits


def sum_gradients(
    model: nn.Module,
    loss: Tensor,
    step: int,
    run: Runtime,
    stop: Stop,
    told: Mapping[str, float] | None = None,
    sums: GradientSums | None = None,
) -> float:
    """Sum loss and gradients over the workers in one message, which also says whether one of them is to stop.

    ``told``: figures to sum with them, besides those of `Runtime.figures`, for selectors and the controller. ``sums``:
    has summed gradients since the backward pass began. Gradients that overflow fp16 are taken away, on all workers
    alike: the optimizer then leaves the weights as they are.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    if run.transport.size == 1:
        total, stop.agreed = float(loss), stop.asked
    else:
        figures = {**(told or {}), **run.figures()}
        # A parameter that no worker's loss uses must keep its gradient None, which some optimizers treat unlike zero.
        about = [float(stop.asked), *figures.values(), *(float(p.grad is not None) for p in parameters)]
        head = torch.cat([loss.view(1), torch.tensor(about, dtype=loss.dtype, device=loss.device)])
        run.schedule.ask(step)
        head = _sum_over_workers(parameters, head, step, run) if sums is None else sums.finish(head)
        run.transport.release()
        total, asked, *summed = head.tolist()
        stop.agreed = bool(asked)
        run.observe(dict(zip(figures, summed, strict=False)))
        for parameter, somewhere in zip(parameters, summed[len(figures) :], strict=True):
            parameter.grad = parameter.grad if somewhere else None
    if run.loss_scale is not None:
        run.loss_scale.unscale(parameters, step)
    return total


def _sum_over_workers(parameters: Sequence[nn.Parameter], head: Tensor, step: int, run: Runtime) -> Tensor:
    """Sum gradients, also those that are None here, and some figures [k]; return these."""
    transport, encode = run.transport, run.policy.weights
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat, where = (
        torch.cat([head, *(each.flatten() for each in gradients)]),
        Where("weights", "reduce", step, "weights"),
    )
    summed, rest = flat[: len(head)], flat[len(head) :]
    if encode.as_is:
        transport.all_reduce(flat, where)
    else:
        sum_coded(rest, summed, encode, transport, where, run.channels.seed)
    sizes = [gradient.numel() for gradient in gradients]
    for parameter, total in zip(parameters, rest.split(sizes), strict=True):
        parameter.grad = total.view_as(parameter)
    return summed


@torch.no_grad()
def predict(model: nn.Module, view: View, step: int, call: Call | None = None) -> Tensor:
    """Return the logits of this worker's nodes, [n, C]: ``model(graph, x)``, or ``call(graph, x)`` if given."""
    model.eval()
    view.graph.runtime.begin(step, training=False)
    return (call or model)(view.graph, view.x)


def evaluate(
    model: nn.Module, views: Views, judge: Judge, step: int, transport: Transport, call: Call | None = None
) -> dict[str, float]:
    """Return the score of every split over all workers' nodes; no process sees more than its part."""
    scores = dict[str, float]()
    for view in views.scored:
        rows, data = predict(model, view, step, call), view.data
        scores |= judge.scores(rows, data.y, data.masks, view.scores, (step, transport))
    return scores
