"""A worker for a user's own training loop: written as for one process, run by every worker on its part."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, Unpack

import torch
from torch import Tensor, nn

from isthmus import recipes
from isthmus.api.embedding import Embeddings, NodeEmbedding
from isthmus.api.joining import check_own_loop, joined
from isthmus.api.keywords import WorkerOptions
from isthmus.api.options import complete, config_of, options
from isthmus.api.source import cutter
from isthmus.comm import Transport, Where
from isthmus.console import note
from isthmus.engine import checkpoint
from isthmus.engine.agreement import check_agreement, check_shapes
from isthmus.engine.checkpoints import Checkpoints, meet
from isthmus.engine.config import DTYPES
from isthmus.engine.drift import OFTEN, check_alike
from isthmus.engine.judge import Judge
from isthmus.engine.learnt import own_range
from isthmus.engine.notes import of_first_step, shared_norms
from isthmus.engine.prepare import Views
from isthmus.engine.progress import Progress
from isthmus.engine.record import Record, over_workers
from isthmus.engine.saved_run import described
from isthmus.engine.step import Call, evaluate, predict, sum_gradients
from isthmus.engine.stop import Stop
from isthmus.errors import InputError
from isthmus.features.embedding import Embedding, EmbeddingConfig
from isthmus.features.server import StoreOptions
from isthmus.features.store import Store
from isthmus.local.own_rows import check_is_mean
from isthmus.nn import LocalData, distribute
from isthmus.nn.compiled import compile_model
from isthmus.options import shows
from isthmus.tasks.metrics import Own, check_metric, default_metric
from isthmus.tasks.task import Task
from isthmus.wording import methods_speak_python

T = TypeVar("T")
ALIKE = (
    "update them with worker.step(loss), in place of loss.backward() and optimizer.step(), "
    "with the same optimizer on every worker"
)


@methods_speak_python
class Worker:
    """Worker ``rank`` of ``size``: one of those that torchrun or srun started, or alone in this process.

    ::

        with isthmus.Worker("parts") as worker:
            model = Net(worker.num_features, worker.num_classes)
            optimizer = torch.optim.Adam(model.parameters())
            worker.prepare(model, optimizer)
            for _ in range(100):
                optimizer.zero_grad()
                out = model(worker.graph, worker.x)
                worker.step(cross_entropy(out[worker.train_mask], worker.y[worker.train_mask]))
            worker.print(worker.evaluate(model))

    For this worker's n nodes it has ``graph`` (a `LocalGraph`), features ``x`` [n, F], labels ``y`` [n] or [n, C],
    ``train_mask``, ``val_mask`` and ``test_mask`` [n]; ``graph.nodes`` are their original ids. All are on ``device``,
    where the model belongs: ``Net(…).to(worker.device)``.

    Args:
        source: a parts folder, a book, or anything that ``isthmus.load`` reads. Worker 0 cuts a source that is not yet
            cut into as many parts as there are workers.
        parts: where to cut to, a folder that all workers can read; None: a local folder, removed at the end.
        transport: the links to the other workers, if neither torchrun nor srun started them.

    The others are those of the command ``isthmus train``. Every worker passes the same arguments.
    """

    @shows(options("Worker").values())
    def __init__(
        self,
        source: Any,
        *,
        parts: str | os.PathLike[str] | None = None,
        transport: Transport | None = None,
        **given: Unpack[WorkerOptions],
    ):
        asked = complete("Worker", given)
        own: Own | None = None
        if callable(asked["metric"]):  # every worker has it: it runs the same script
            own, asked["metric"] = asked["metric"], None
        asked["dtype"] = asked["dtype"] or str(torch.get_default_dtype()).removeprefix("torch.")
        chosen = recipes.find(asked["recipe"])
        self.config = config_of(asked, chosen)
        policy = chosen.policy(self.config.options)
        check_own_loop(self.config.recipe, policy)
        cut = cutter(source, chosen.way, asked, seed=asked["seed"], quiet=True)
        self._joined = joined(source, cut, parts, asked, transport)
        self.book, self.transport = self._joined.book, self._joined.transport
        self.rank, self.size = self.transport.rank, self.transport.size
        self.device = self.transport.device
        self.num_features, self.num_classes = self.book.features, self.book.classes
        try:
            check_agreement(self.transport, self.config, self.book)
            named = self.config.metric or default_metric(Task.of(self.book))
            check_metric(named, Task.of(self.book))
            self._judge = Judge(own or named, Task.of(self.book))
            self._views = Views.of(self.book, self.config, policy, self.transport, dense=True)
        except BaseException:
            self.close()
            raise
        self.graph, data = self._views.train.graph, self._views.train.data
        assert isinstance(data.x, Tensor)
        self.x, self.y = data.x, data.y
        self.train_mask, self.val_mask, self.test_mask = (data.masks[name] for name in ("train", "val", "test"))
        self.steps = 0
        self.extra: dict[str, Any] = {}
        self._trained: tuple[nn.Module, torch.optim.Optimizer] | None = None
        self._store: Store | None = None
        self._embeddings = Embeddings(own_range(self.book, self.transport))
        self.graph.runtime.begin(0)

    def prepare(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Set what `step` updates; copy the weights of worker 0 to all workers and let PyG convolutions take the graph.

        A model is called as ``model(graph, x)``, or as ``model(x, graph)`` if it is one of PyG's ``(x, edge_index)``.
        """
        distribute(model, self.graph)
        if self.config.compile is not None:
            compile_model(model, self.config.compile, self.device)
        if self.rank == 0 and (shared := shared_norms(model, self.size)):
            note(shared)
        tensors = [*model.parameters(), *model.buffers()]
        elsewhere = next((tensor.device for tensor in tensors if tensor.device != self.device), None)
        if elsewhere is not None:
            raise InputError(
                f"the model is on {elsewhere}, the rows are on {self.device}: make the optimizer after "
                "model.to(worker.device), or ask for Worker(…, device=…)"
            )
        check_shapes(self.transport, model)
        for tensor in tensors:
            value = tensor.data.contiguous() if self.rank == 0 else torch.zeros_like(tensor.data)
            where = Where("weights", "reduce", self.steps, "weights")
            tensor.data.copy_(self.transport.all_reduce(value, where))
        self._trained = model, optimizer

    @property
    def data(self) -> LocalData:
        """This worker's nodes in the form of PyG's ``Data``, for models that take one: ``model(worker.data)``."""
        masks = {"train_mask": self.train_mask, "val_mask": self.val_mask, "test_mask": self.test_mask}
        return LocalData(self.graph, self.x, y=self.y, **masks)

    def step(self, loss: Tensor, rows: float | Tensor | None = None, weight: float | Tensor | None = None) -> float:
        """Do ``loss.backward()`` and ``optimizer.step()`` on all workers together; return the loss over all their rows.

        ``loss`` is the mean over this worker's training nodes or, if ``rows`` is given, over that many rows. It counts
        by its share of all workers' rows, so the update is that of one process with the whole graph. With ``weight``,
        ``loss`` is a total instead, which is divided by the weights of all workers: for a loss with class weights, pass
        it with ``reduction="sum"``, and ``weight=w[y].sum()``.
        """
        total = self.backward(loss, rows, weight)
        self._prepared[1].step()
        self._embeddings.step()
        return total

    def backward(self, loss: Tensor, rows: float | Tensor | None = None, weight: float | Tensor | None = None) -> float:
        """Do `step` without the optimizer's update: the gradients are summed over the workers, e.g. to be clipped."""
        model, _ = self._prepared
        if self.steps % OFTEN == 0:
            self._check_alike(model)
        if rows is not None and weight is not None:
            raise InputError("rows= is for a mean, weight= for a total: give one of them")
        if rows is None and weight is None and self.size > 1:
            check_is_mean(loss)
        share = self._share(rows, weight)
        self.graph.runtime.backward(loss, torch.full_like(loss, share))
        # The mean over no rows is NaN, but has no gradient either.
        value = loss.detach() * share if share else torch.zeros_like(loss)
        total = sum_gradients(model, value, self.steps, self.graph.runtime, Stop())
        self.steps += 1
        if self.steps == 1 and self.rank == 0:
            for told in of_first_step(self.config, self.book, self.graph, model, self.steps):
                note(told)
        self.graph.runtime.begin(self.steps)
        return total

    def _share(self, rows: float | Tensor | None, weight: float | Tensor | None) -> float:
        """Return the factor of this worker's loss in that of all workers."""
        given = rows if weight is None else weight
        if given is None:
            mine, whole = float(self.train_mask.sum()), float(self.book.train[self.config.split])
        else:
            mine = float(given.detach()) if isinstance(given, Tensor) else float(given)
            message = torch.tensor([mine], dtype=torch.float64, device=self.x.device)
            whole = float(self.transport.all_reduce(message, Where("rows", "reduce", self.steps, "weights")))
        return (mine if weight is None else 1.0) / whole if whole else 0.0

    def evaluate(self, model: nn.Module, call: Call | None = None) -> dict[str, float]:
        """Return the exact scores of train, val and test nodes over all workers; NaN if there are no such nodes.

        A model that takes more than the graph and x is called by ``call``, e.g. ``lambda graph, x: model(x, graph,
        graph.edge_attr)``.
        """
        self._check_alike(model)
        about = (self._judge, self.steps, self.transport, call)
        return self._in_evaluation(model, lambda: evaluate(model, self._views, *about))

    def predict(self, model: nn.Module, call: Call | None = None) -> Tensor:
        """Return the model's output for this worker's nodes, [n, C], from fresh rows of all their neighbours."""
        self._check_alike(model)
        return self._in_evaluation(model, lambda: predict(model, self._views.train, self.steps, call))

    def save(self, folder: str | os.PathLike[str], extra: dict[str, Any] | None = None) -> None:
        """Write a checkpoint, whole or not at all, to a folder that all workers can read; keep the two newest.

        ``extra``, such as ``{"scheduler": scheduler.state_dict()}``, is kept with it: numbers, words, lists, dicts and
        tensors. `isthmus predict` takes the folder, with ``--model package.module:Net`` for a model that is made by
        ``Net(features, classes)``; the weights are in ``checkpoints/step-N/best.safetensors``.
        """
        model, _ = self._prepared
        self._check_alike(model)
        self._checkpoints(folder).save(Progress(self.steps, best_step=self.steps), model.state_dict(), extra)
        if self.rank == 0:
            config = replace(self.config, model=self.config.model.made_by(type(model)))
            Record(Path(folder)).begin(described(model, config, self.book, self.transport), self.steps)
        meet(self.transport, self.steps)

    def restore(self, folder: str | os.PathLike[str]) -> int:
        """Resume from the newest checkpoint in the folder; return its step, 0 for none. `extra` has the rest."""
        saved, run = self._checkpoints(folder), Path(folder)
        found = checkpoint.newest(run, self.print) if self.rank == 0 and checkpoint.steps(run) else -1
        step = int(over_workers([float(found)], self.transport)[0])
        if step < 0:
            return 0
        progress, _, _ = saved.restore(step)
        self.extra, self.steps = checkpoint.read_extra(run, step), progress.step
        self.graph.runtime.begin(self.steps)
        return self.steps

    def store(self, *, structure: str = "here", edge_data: bool | None = None) -> Store:
        """Return the store of rows and neighbours of all parts; the first call opens it, on all workers together.

        ``structure="owner"``: edges of other workers' parts are not read, owners draw. ``edge_data=False``: what edges
        carry is not read either; it is by default, where they carry anything.
        """
        asked = StoreOptions(structure, edge_data=self.book.has_edge_attr if edge_data is None else edge_data)
        if self._store is None:
            self._store = Store(self.book, self.transport, asked)
        elif self._store.options != asked:
            raise InputError(f"the store is already open with {self._store.options}: give the same options every time")
        return self._store

    def embedding(self, name: str, width: int, **how: Any) -> NodeEmbedding:
        """Return rows that all nodes learn, sharded by owner; all workers call it together, before the first step.

        ``how``: ``lr`` (0.01), ``optimizer`` (adam, adagrad, sgd), ``reduce`` (sum, mean), ``hogwild``
        (`features.embedding`). `step` updates the rows, `save` and `restore` keep them.
        """
        store, dtype = self.store() if self._store is None else self._store, DTYPES[self.config.dtype]
        own = store.server.original[slice(*own_range(self.book, self.transport))]
        table = Embedding(EmbeddingConfig(width, **how), own, self.config.seed, dtype, self.size)
        self._embeddings[name] = NodeEmbedding(name, store, table, self.device)
        meet(self.transport, self.steps)  # no worker asks for rows that are not there yet
        return self._embeddings[name]

    def print(self, *values: object) -> None:
        """Print on worker 0 only."""
        if self.rank == 0:
            print(*values, flush=True)

    def close(self) -> None:
        """Disconnect from the other workers; ``with isthmus.Worker(…) as worker:`` does it by itself."""
        if hasattr(self, "graph"):
            self.graph.runtime.drain()
            if self._store is not None:
                self._store.close()
        self._joined.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                if self._trained is not None:
                    self._check_alike(self._trained[0])
                meet(self.transport, self.steps)  # no worker exits while another still needs its rows
                self.graph.runtime.drain()
        finally:
            self.graph.runtime.close()
            if self._store is not None:
                self._store.close()
            self._joined.close()

    def __repr__(self) -> str:
        return f"Worker({self.rank} of {self.size}: {self.config.recipe} on {self.graph})"

    @property
    def _prepared(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        if self._trained is None:
            raise InputError("the worker does not know what to train: call worker.prepare(model, optimizer) first")
        return self._trained

    @property
    def _identity(self) -> dict[str, Any]:
        """The options that must not change between a checkpoint and its restoration."""
        names = ("recipe", "options", "split", "features", "inductive", "seed", "dtype", "rows_dtype")
        return {"parts": self.book.fingerprint, **{name: getattr(self.config, name) for name in names}}

    def _checkpoints(self, folder: str | os.PathLike[str]) -> Checkpoints:
        about = self.graph.runtime, *self._prepared, self._identity
        return Checkpoints(Path(folder), *about, self._embeddings if self._embeddings else None)

    def _check_alike(self, model: nn.Module) -> None:
        check_alike(model, self.transport, ALIKE)

    def _in_evaluation(self, model: nn.Module, look: Callable[[], T]) -> T:
        """Return the result of `look`, such that the next training step is not affected by it."""
        training = model.training
        try:
            return look()
        finally:
            model.train(training)
            self.graph.runtime.begin(self.steps)
