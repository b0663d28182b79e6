"""Prepare everything that a run begins with: features, labels, the graphs a model may see, model and optimizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from isthmus.comm import Transport, Where
from isthmus.device import HOST, is_host, on_host, to_device
from isthmus.engine.config import DTYPES, ROWS_DTYPES, TrainConfig
from isthmus.engine.learning import Learner
from isthmus.engine.learnt import input_width, make_table
from isthmus.engine.room import check_room
from isthmus.errors import InputError
from isthmus.features.embedding import Embedding
from isthmus.features.scaling import Scaling, Stored
from isthmus.graph.graph import SparseRows
from isthmus.kernels import Csr, HostRows, SparseMatrix
from isthmus.local import FEW, LocalGraph, Policy, induced_graph, isolated_graph
from isthmus.minibatch import NodeData
from isthmus.nn import Model, distribute
from isthmus.nn.calling import Calling
from isthmus.nn.compiled import compile_model
from isthmus.nn.layers import Rows
from isthmus.partition import Book, Part, own_part
from isthmus.shard import IsolatedShard
from isthmus.shard.load import as_tensor
from isthmus.tasks.losses import Loss, build_loss, output_width
from isthmus.tasks.task import Task

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Data:
    """The data of n inner nodes: rows [n, F], labels [n] or [n, C], and one bool mask [n] per split."""

    x: Rows
    y: Tensor
    masks: dict[str, Tensor]
    scaling: Scaling = field(default_factory=Scaling)
    """What was made of the features of the files to get x."""

    @staticmethod
    def of(part: Part, config: TrainConfig, transport: Transport) -> Data:
        splits = part.train_mask.shape[1]
        if config.split >= splits:
            raise InputError(f"split {config.split} does not exist: the graph has splits 0 to {splits - 1}")
        here = partial(as_tensor, device=transport.device)
        masks = {name: here(getattr(part, f"{name}_mask")[:, config.split]) for name in SPLITS}
        stay = config.features_on == "host" and not is_host(transport.device)
        x = _rows(part.x, DTYPES[config.dtype], partial(as_tensor, device=HOST) if stay else here)
        if stay and isinstance(x, SparseMatrix):
            raise InputError("these features are sparse and stay so, on the device: leave --features-on host out")
        # Inductive training must not use other nodes, not even the mean of their features.
        known = masks["train"] if config.inductive else slice(None)
        if stay and isinstance(known, Tensor):
            known = on_host(known)
        scaling = Scaling.fit(x, config.features, known, transport)
        x = scaling.apply(x)
        held = HostRows.of(x, transport.device) if stay and isinstance(x, Tensor) else x
        return Data(held, here(part.y), masks, scaling)

    def take(self, keep: Tensor) -> Data:
        """Return the data of the nodes of a bool mask."""
        x = self.x[keep] if isinstance(self.x, Tensor) else self.x.take(keep.nonzero().flatten())
        return replace(self, x=x, y=self.y[keep], masks={name: mask[keep] for name, mask in self.masks.items()})

    def with_mirrors(self, graph: LocalGraph) -> Data:
        """Return the data with the rows of mirrors, fetched from their masters; mirrors have no label and no split."""
        x = self.x if isinstance(self.x, Tensor) else self.x.dense()
        run, h = graph.runtime, graph.num_rows - graph.num_inner
        there = run.whole.links.pull(x, run.transport, Where("features", "setup", 0, "features"))
        y = torch.cat([self.y, self.y.new_zeros(h, *self.y.shape[1:])])
        masks = {name: torch.cat([mask, mask.new_zeros(h)]) for name, mask in self.masks.items()}
        return replace(self, x=torch.cat([x, there]), y=y, masks=masks)

    def shared(self, graph: LocalGraph) -> Data:
        """Return the data, of which mirrors have rows already, with the labels and splits of their masters."""
        run, n = graph.runtime, graph.num_inner

        def told(values: Tensor) -> Tensor:
            where = Where("labels", "setup", 0, "ids")
            return torch.cat([values[:n], run.whole.links.pull(values[:n], run.transport, where)])

        masks = {name: told(mask.to(torch.uint8)).bool() for name, mask in self.masks.items()}
        return Data(self.x, told(self.y), masks)


@dataclass(frozen=True)
class View:
    """A graph, the data of its nodes, the width of a model's output, the splits that are scored on it, and the loss."""

    graph: LocalGraph
    data: Data
    classes: int
    scores: tuple[str, ...]
    loss: Loss
    passes: int = 1
    """The number of forward and backward passes in a step, each with draws of its own."""
    learnt: Embedding | None = None
    counts: Tensor | None = None
    """How much each training row counts, where a node has rows on several workers."""
    """The rows that this worker's nodes learn, where the graph has no features."""

    @property
    def x(self) -> Any:
        """The rows that a model reads, [n, F]: features, or learnt rows as they are now."""
        if self.learnt is None:
            return self.data.x
        return to_device(self.learnt.rows, self.graph.runtime.transport.device)

    def batch_data(self, model: nn.Module, x: Rows, train: Tensor, dtype: torch.dtype | None = None) -> NodeData:
        """Return what mini-batches for a model are made of: rows, labels, and what the model reads of edges.

        ``train``: the seed nodes, int64; ``dtype``: of feature rows in a batch, if not their own.
        """
        reads = isinstance(model.forward, Calling) and model.forward.reads_edges and not isinstance(model, Model)
        return NodeData(
            x.to(HOST),
            on_host(self.data.y),
            on_host(train),
            dtype,
            self.data.scaling if self.learnt is None else None,
            weighted=self.graph.runtime.whole.weighted,
            edge_data=reads and self.graph.runtime.whole.edge_attributes is not None,
        )


@dataclass(frozen=True)
class Views:
    """The graphs of a run; transductive: one for all; inductive: training nodes, with validation nodes, all nodes."""

    train: View
    scored: tuple[View, ...]

    @staticmethod
    def of(book: Book, config: TrainConfig, policy: Policy, transport: Transport, dense: bool = False) -> Views:
        """Build the views of this worker; ``dense``: feature rows as a plain tensor, even if they are stored sparse."""
        policy = policy.with_cut(config.cut, book.cut)
        if config.hosts is not None:
            transport.on_hosts(config.hosts)
        part = own_part(book, transport.rank, transport.size)
        check_room(part, DTYPES[config.dtype], transport, config.features_on == "host")
        graph = LocalGraph.from_part(
            part,
            transport,
            book.symmetric,
            policy=policy,
            dtype=DTYPES[config.dtype],
            rows_dtype=ROWS_DTYPES[config.rows_dtype] if config.rows_dtype else None,
            seed=config.seed,
            weighted=config.edge_weights == "auto" and has_weights(part),
        )
        data = Data.of(part, config, transport)
        if isinstance(data.x, HostRows):
            _check_on_host(graph, dense)
        if dense and not isinstance(data.x, torch.Tensor):
            data = replace(data, x=data.x.dense())
        if graph.runtime.whole.replicated:
            data = data.with_mirrors(graph)
        train, task = data.masks["train"], Task.of(book)
        learnt = make_table(part, book, config, policy, transport)
        loss = build_loss(config.loss, task, data.y[train], transport)
        width = output_width(config.loss, task, config.model.hidden)

        def view(of: LocalGraph, rows: Data, scores: tuple[str, ...]) -> View:
            if isinstance(rows.x, SparseMatrix) and not of.runtime.keeps_sparse:
                rows = replace(rows, x=rows.x.dense())
            of.runtime.fix(rows.x)
            return View(of, rows, width, scores, loss, config.accumulate, learnt)

        if not config.inductive:
            whole = view(graph, data, ("train", "val", "test"))
            if policy.isolated:
                return Views(_isolated(whole), (whole,))
            share = book.train[config.split] / book.nodes
            if share <= FEW:
                graph.runtime.needs_only(train.nonzero().flatten(), share)
            return Views(whole, (whole,))
        seen = view(induced_graph(graph, train), data.take(train), ("train",))
        known = train | data.masks["val"]
        val = view(induced_graph(graph, known), data.take(known), ("val",))
        return Views(seen, (seen, val, view(graph, data, ("test",))))


def _isolated(whole: View) -> View:
    """Return the view of this worker's edges alone, in which all replicas have labels, and count by their edges."""
    graph, data = isolated_graph(whole.graph), whole.data.shared(whole.graph)
    graph.runtime.fix(data.x)
    shard = graph.runtime.whole
    assert isinstance(shard, IsolatedShard), "it was made of one"
    return replace(whole, graph=graph, data=data, scores=(), counts=shard.shares[data.masks["train"]])


def _check_on_host(graph: LocalGraph, dense: bool) -> None:
    """Refuse features on the host where a model, or a recipe, reads all of them at every step."""
    if dense:
        raise InputError("--features-on host is for the models gcn, sage and gat: others get all rows as one tensor")
    if not graph.runtime.keeps_on_host:
        raise InputError(
            "--features-on host needs features that are aggregated once: leave out savings=as-published, cache_rows "
            "and vertex-cuts, or leave the features on the device"
        )


def has_weights(part: Part) -> bool:
    """Return whether the edges of a part have one attribute each, which is their weight."""
    attributes = part.inner_edge_attr
    return attributes is not None and (attributes.ndim == 1 or attributes.shape[1] == 1)


def prepare(
    book: Book, config: TrainConfig, policy: Policy, transport: Transport, model: nn.Module | None = None
) -> tuple[Views, nn.Module, Learner]:
    """Build views, model and its learner; all workers call it together. ``model`` replaces the one of the config."""
    if model is None:
        width = output_width(config.loss, Task.of(book), config.model.hidden)
        model = config.model.build(input_width(book, policy), width, config.seed, DTYPES[config.dtype])
    distribute(model)
    model.to(transport.device)
    if config.compile is not None:
        compile_model(model, config.compile, transport.device)
    # A user's own model may not support sparse rows.
    views = Views.of(book, config, policy, transport, dense=not isinstance(model, Model))
    return views, model, Learner(config, model)


def _rows(x: np.ndarray | SparseRows, dtype: torch.dtype, here: Callable[[np.ndarray], Tensor]) -> Stored:
    if isinstance(x, SparseRows):
        return SparseMatrix(Csr(here(x.indptr), here(x.indices), x.width), here(x.data).to(dtype))
    return here(x).to(dtype)
