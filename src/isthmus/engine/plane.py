"""The two planes of training: a step passes over the whole graph, or over a mini-batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from isthmus.device import HOST, is_host, on_host, to_device
from isthmus.engine.checkpoints import Shards
from isthmus.engine.config import TrainConfig
from isthmus.engine.gradient_sums import GradientSums
from isthmus.engine.history import Histories
from isthmus.engine.judge import Judge
from isthmus.engine.learning import Learner
from isthmus.engine.prepare import View, Views
from isthmus.engine.sampled import sampled_scores
from isthmus.engine.step import evaluate, sum_gradients, train_step
from isthmus.engine.stop import Stop
from isthmus.errors import InputError
from isthmus.local import Policy
from isthmus.local.controlled import ControlledGraph
from isthmus.minibatch import (
    ROWS,
    STRUCTURES,
    WAYS,
    Batch,
    BatchConfig,
    BatchPolicy,
    Neighbourhoods,
    NodeData,
    Pipeline,
    Prefetcher,
    batch_maker,
    learnt_rows,
    other_fanouts,
    read_fanouts,
    sampling_dag,
)
from isthmus.nn import Model, norms_of
from isthmus.partition import Book
from isthmus.sample import JointSampler
from isthmus.tasks.losses import pairs_of


class Plane(Protocol):
    """The step of a run: over the whole graph, or on a mini-batch.

    Evaluation is exact, layer by layer on the parts, in both planes; mini-batches may draw neighbours for it, too.
    """

    def step(self, model: nn.Module, optimizer: Optimizer | Learner, step: int, probe: bool, stop: Stop) -> float:
        """Update the weights once; return the loss, which is the same on every worker."""

    def evaluate(self, model: nn.Module, views: Views, judge: Judge, step: int) -> dict[str, float]:
        """Return the score of every split over all workers' nodes."""

    @property
    def told(self) -> dict[str, Any]:
        """The decisions of the scheduler of batches for the last step, for the record; empty without one."""

    @property
    def kept(self) -> Shards | None:
        """The rows that are kept from step to step, for checkpoints; None: there are none."""

    def settle(self) -> None:
        """Return when no update of this worker's is under way."""

    def close(self, wait: bool) -> None:
        """End what runs beside the steps; ``wait``: all workers close at the same step."""


def plane_of(book: Book, config: TrainConfig, policy: Policy, views: Views, model: nn.Module) -> Plane:
    """Return the plane of a run: mini-batches if the policy has some, else the full graph."""
    pairs = pairs_of(config.loss)
    if policy.batches is None:
        if pairs is not None:
            raise InputError(
                f"skip-gram trains by mini-batches, {config.recipe} does not: give --recipe bytegnn or distdgl"
            )
        return FullGraph(views.train, book.train[config.split])
    if book.cut == "vertex":
        raise InputError("mini-batches need every edge with the owner of its target: cut with --cut edge")
    if not book.train[config.split] and pairs is None:
        raise InputError(f"{book.name} has no training node in split {config.split}: there is nothing to draw")
    if config.accumulate > 1:
        raise InputError("--accumulate is for full-graph training: give mini-batches a larger --batch-size instead")
    if views.train.learnt is not None and views.train.graph.runtime.loss_scale is not None:
        raise InputError("learnt rows take no fp16, whose gradients are scaled: give precision=bf16 or fp32")
    asked = batch_config(config, policy.batches, model)
    if asked.way == "together" and config.rows not in (None, "owner"):
        other = "" if policy.batches.joint is not None else ", or give --batch apart"
        raise InputError(f"joint batches ask the owners of rows: leave --rows {config.rows} out{other}")
    own = isinstance(model, Model) and not config.model.input_dropout
    # These models round input rows to bf16 first of all: so they are gathered, and so they travel.
    half = views.train.graph.runtime.half
    dtype = half if own and half is torch.bfloat16 else None
    view = views.train
    seeds = view.data.masks["train"] if pairs is None else torch.ones_like(view.data.masks["train"])
    data = view.batch_data(model, view.data.x, seeds.nonzero().flatten(), dtype)
    return MiniBatches(book, config, asked, policy.batches, view, data, model)


def batch_config(config: TrainConfig, policy: BatchPolicy, model: nn.Module) -> BatchConfig:
    """Return what the user asks of batches, with the recipe's own figures where nothing is asked."""
    layers = len(model.convs) if isinstance(model, Model) else config.model.layers
    fanouts = policy.usual_fanouts(config.model.layers) if config.fanout is None else config.fanouts
    wanted = {
        "fanout": () if policy.joint is not None else fanouts,
        "eval-fanout": read_fanouts(config.eval_fanout) if config.eval_fanout else (),
    }
    for name, given in wanted.items():
        if given and isinstance(model, Model) and layers != len(given):
            raise InputError(
                f"--{name} draws for {len(given)} hop(s), but the model has {layers} layer(s): give one each"
            )
    pairs = pairs_of(config.loss)
    if policy.joint is not None:
        if pairs is not None:
            raise InputError(
                f"skip-gram needs neighbours of seed nodes, which {config.recipe} does not draw: use bytegnn"
            )
        _check_joint(config, policy.joint)
        return BatchConfig(config.batch_size or policy.size, (-1,) * layers, way="together")
    normalises = any(True for _ in norms_of(model))
    way = config.batch if config.batch in WAYS else "together" if normalises else "apart"
    if pairs is not None and way == "together":
        raise InputError(
            "skip-gram compares rows of nodes that one worker computes: give --batch apart"
            + (", with which the norms of this model are those of each worker's batch" if normalises else "")
        )
    return BatchConfig(
        size=config.batch_size or policy.size,
        fanouts=fanouts,
        way=way,
        structure=config.structure or STRUCTURES[0],
        rows=config.rows or ROWS[0],
        pairs=pairs,
    )


def _check_joint(config: TrainConfig, joint: JointSampler) -> None:
    """Refuse options that mean nothing where all workers draw one batch."""
    if config.fanout is not None:
        raise InputError("this recipe draws no neighbours node by node: leave --fanout out, --layers counts the layers")
    if config.batch == "apart":
        raise InputError("this recipe computes every node of a batch once, by its owner: leave --batch apart out")
    if config.structure == "owner":
        raise InputError("this recipe draws from the edges of all parts: leave --structure owner out")
    if config.batch_size is not None and not joint.sized:
        raise InputError("clusters says how large batches are: leave --batch-size out, or clusters")


class FullGraph:
    """Every step is one pass over the shard (`engine.step`)."""

    def __init__(self, view: View, labelled: int):
        self.view, self.labelled = view, labelled

    def step(self, model: nn.Module, optimizer: Optimizer | Learner, step: int, probe: bool, stop: Stop) -> float:
        return train_step(model, optimizer, self.view, self.labelled, step, probe, stop)

    def evaluate(self, model: nn.Module, views: Views, judge: Judge, step: int) -> dict[str, float]:
        return evaluate(model, views, judge, step, self.view.graph.runtime.transport)

    @property
    def told(self) -> dict[str, Any]:
        return {}

    @property
    def kept(self) -> None:
        return None

    def settle(self) -> None:
        """Do nothing: a step is over when it returns."""

    def close(self, wait: bool) -> None:
        """Do nothing: the full graph leaves nothing behind."""


class MiniBatches:
    """Every step computes the loss of some seed nodes on neighbours drawn for them.

    Every worker has its share of the loss of the step's seed nodes on *all* workers (`tasks.losses`); gradients are
    summed, so the update is that of one process. A worker without seed nodes takes part with no rows.
    """

    def __init__(
        self,
        book: Book,
        config: TrainConfig,
        asked: BatchConfig,
        policy: BatchPolicy,
        view: View,
        data: NodeData,
        model: nn.Module,
    ):
        transport = view.graph.runtime.transport
        maker = batch_maker(book, asked, policy, transport, data, config.seed)

        def begin(step: int) -> Callable[[], Batch]:
            begun = maker.begin(step)
            return lambda: begun.finish().to(transport.device)  # made on the host, copied ahead of its step

        self.view = view
        self.history = Histories(model, view, maker.rows.requests.ranges) if policy.history else None
        self.sums: GradientSums | None = None
        self.drawn: Neighbourhoods | None = None
        if config.eval_fanout is not None:
            self.drawn = other_fanouts(maker, read_fanouts(config.eval_fanout), config.seed, view.x.to(HOST))
        self.learnt = None if view.learnt is None else learnt_rows(view.learnt, book, transport)
        self.prefetcher: Prefetcher | Pipeline
        if policy.dag is None:
            self.prefetcher = Prefetcher(begin, policy.ahead, config.steps, transport)
        else:
            dag, scheduler = sampling_dag(maker, policy, transport.device), policy.dag.made_scheduler
            self.prefetcher = Pipeline(dag, scheduler, policy.ahead, config.steps, transport)

    @property
    def told(self) -> dict[str, Any]:
        return self.prefetcher.told

    def step(self, model: nn.Module, optimizer: Optimizer | Learner, step: int, probe: bool, stop: Stop) -> float:
        batch, run = self.prefetcher.take(step), self.view.graph.runtime
        model.train()
        optimizer.zero_grad(set_to_none=True)
        run.begin(step, layers=batch.layers)
        x = batch.x
        if self.learnt is not None:
            x = to_device(self.learnt.pull(batch.nodes, step), run.transport.device).requires_grad_()
        graph = self.view.graph if self.history is None else self.history.begin(batch)
        logits = self._checked(model(graph, x), batch)
        # Rows that count by their chances add up to an estimate of the loss of all training rows.
        rows = max(batch.seeds, 1) if batch.counts is None else None
        loss = self.view.loss.share(logits, batch.y, run.transport, step, rows, batch.counts)
        sums = self._sums_of(model)
        if sums is not None:
            sums.begin(step)
        run.backward(loss)
        total = sum_gradients(model, loss.detach(), step, run, stop, sums=sums)
        optimizer.step()
        if self.learnt is not None:
            self.learnt.push(on_host(torch.zeros_like(x) if x.grad is None else x.grad), step)
        if isinstance(graph, ControlledGraph) and self.history is not None:
            self.history.keep(graph.controls, batch)
        run.begin(step, training=False)  # the graph is the whole one again, and the batch is let go
        return total

    def evaluate(self, model: nn.Module, views: Views, judge: Judge, step: int) -> dict[str, float]:
        if self.drawn is None:
            return evaluate(model, views, judge, step, self.view.graph.runtime.transport)
        self.drawn.rows.own = self.view.x.to(HOST)  # learnt rows are other ones now
        return sampled_scores(model, self.view, self.drawn, judge, step)

    def _sums_of(self, model: nn.Module) -> GradientSums | None:
        """Return what sums gradients of the host during the backward pass; None if they are coded, or the only ones."""
        run = self.view.graph.runtime
        here = run.transport.size > 1 and is_host(run.transport.device)
        if self.sums is None and here and run.policy.weights.as_is:
            self.sums = GradientSums([p for p in model.parameters() if p.requires_grad], run.transport)
        return self.sums

    def _checked(self, logits: Tensor, batch: Batch) -> Tensor:
        wanted = [batch.layers[-1].num_inner, self.view.classes]
        if not isinstance(logits, Tensor) or list(logits.shape) != wanted:
            given = list(logits.shape) if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
            raise InputError(
                f"the model gives {given} for a batch with {wanted[0]} seed nodes here: it has to give {wanted} and "
                f"to aggregate {len(batch.layers)} times, as often as --fanout has numbers, or as --layers says"
            )
        return logits

    @property
    def kept(self) -> Histories | None:
        return self.history

    def settle(self) -> None:
        if self.learnt is not None:
            self.learnt.settle()

    def close(self, wait: bool) -> None:
        self.prefetcher.close(wait)
        if self.sums is not None:
            self.sums.close()
        if self.learnt is not None and not wait:
            self.learnt.close()
