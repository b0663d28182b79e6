"""Predict the cost of mini-batches: draw the batches of some workers here, count their rows, time what is computed.

Nothing is sent. Draws are keyed, so the rows that are counted are those that a run with these parts asks for; a larger
graph of the same kind is planned from a smaller one, whose batches read about as many rows (``scale``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from isthmus import recipes
from isthmus.comm import Hub, codec
from isthmus.engine import TrainConfig
from isthmus.engine.config import DTYPES
from isthmus.engine.learning import Learner
from isthmus.engine.plane import batch_config
from isthmus.engine.prepare import View, prepare
from isthmus.errors import InputError
from isthmus.experiments.plan.memory import LiveBytes
from isthmus.experiments.plan.replay import Cluster
from isthmus.features.part_files import PartFiles
from isthmus.features.scaling import Scaling
from isthmus.features.tables import Table
from isthmus.graph import Graph
from isthmus.launch.memory import GAPS, kept_blocks
from isthmus.local import Policy
from isthmus.minibatch import BatchConfig, BatchPolicy
from isthmus.minibatch.apart import Here
from isthmus.minibatch.batch import Expanded
from isthmus.minibatch.cache import most_worth
from isthmus.minibatch.seeds import SeedOrder, Shares, owner_of
from isthmus.minibatch.worth import row_worth
from isthmus.nn import Model
from isthmus.partition import Book, partition, shares
from isthmus.recipes.parse import Entry
from isthmus.sample import Structure
from isthmus.shard.load import as_tensor

LOOKED_AT = 8  # workers whose batches are drawn, if there are more
_ID_BYTES, _COUNT_BYTES = 4, 8  # of a row that is asked for, and of the number of rows that each peer is told


@dataclass(frozen=True)
class BatchOutlook:
    """The predicted cost of mini-batches. Rows are a worker's, bytes those of all workers, both in a mean step."""

    label: str
    recipe: str
    options: dict[str, Any]
    rows: dict[str, float]
    """read: all; of these own, from_files (of parts on the same machine), cached, and asked."""
    bytes_per_step: dict[str, float]
    memory_per_worker: int
    """What a worker holds: the process, edges of all parts, batches, weights and what a step makes."""
    files_per_machine: int
    """Feature files that a machine maps: they are fastest if they fit into what memory is left."""
    fits: bool
    making_seconds: float
    """Drawing a batch and reading its rows."""
    compute_seconds: float
    transfer_seconds: float
    """The busiest direction of a link."""
    step_seconds: float
    epoch_seconds: float


class Parts:
    """The edges, feature files and training nodes that all plans of a folder of parts share."""

    def __init__(self, book: Book, config: TrainConfig, workers: int):
        if book.cut == "vertex":
            raise InputError("mini-batches need every edge with the owner of its target: cut with --cut edge")
        self.book, self.config, self.workers = book, config, workers
        self.blocks = shares(book, workers)
        self.ranges = torch.tensor([*(book.ranges[block.start] for block in self.blocks), book.nodes])
        self.structure = Structure.of_book(book, numbered=False)
        self.dtype = DTYPES[config.dtype]
        self.files = PartFiles.of(book, range(book.num_parts), self.dtype, Scaling())
        self.labels = Table.of(book, "y", range(book.num_parts))
        masks = [as_tensor(book.part(k).train_mask[:, config.split]) for k in range(book.num_parts)]
        self.train = torch.cat(masks).nonzero().flatten()
        if not len(self.train):
            raise InputError(f"{book.name} has no training node in split {config.split}: there is nothing to draw")

    @property
    def looked_at(self) -> list[int]:
        """The workers whose batches are drawn: all, or some that are spread evenly."""
        count = min(self.workers, LOOKED_AT)
        return [place * self.workers // count for place in range(count)]

    @property
    def bytes_of_edges(self) -> int:
        """The memory of the structure and of the numbers that nodes get in a batch."""
        held = self.structure
        assert held.original is not None
        tensors = (held.pattern.indptr, held.pattern.indices, held.original)
        return sum(one.nbytes for one in tensors) + 4 * held.num_rows

    def read(self, nodes: Tensor, out: Tensor) -> Tensor:
        """Write the feature rows of nodes (int64, book ids) to ``out``."""
        self.files.read(nodes, torch.arange(len(nodes)), out)
        return out


@dataclass(frozen=True)
class Machine:
    """The assumptions of a plan about a worker's machine and the size of the graph."""

    process: int
    """The bytes of a worker that has read nothing."""
    loopback: float
    """Bytes per second between workers of one machine."""
    memory: int | None = None
    scale: float = 1.0
    """How many times as many nodes and edges the graph has that is planned for."""


def plan_batches(
    entry: Entry, config: TrainConfig, parts: Parts, cluster: Cluster, steps: int, machine: Machine
) -> BatchOutlook:
    """Draw the batches of some steps, and compute those steps on this machine."""
    book, config = parts.book, replace(config, recipe=entry.recipe, options=entry.options)
    policy = recipes.find(entry.recipe).policy(entry.options)
    batches, original = policy.batches, parts.structure.original
    assert batches is not None
    assert original is not None
    seed = config.seed if batches.seed is None else batches.seed
    with _rehearsal(book, config, policy) as (model, view, learner):
        asked = batch_config(config, batches, model)
        _check(asked, batches, entry.label)
        order = SeedOrder(parts.train, original[parts.train], asked.size, seed)
        drawn = _Drawn(parts, asked, batches, order, cluster)
        half = view.graph.runtime.half
        dtype = half if half is torch.bfloat16 and isinstance(model, Model) else parts.dtype
        played = [
            _play(drawn, worker, step, _Trained(model, view, learner), dtype)
            for step in range(steps + 1)
            for worker in parts.looked_at
        ]
        weights = sum(p.numel() + 1 for p in model.parameters()) + 2  # with the loss, and whether each has a gradient
    counted = [drawn.count(worker, step) for step in range(1, steps + 1) for worker in parts.looked_at]
    rows = {name: mean(one[name] for one in counted) for name in ("read", "own", "from_files", "cached", "asked")}
    wire = codec("bf16") if dtype is torch.bfloat16 and batches.rows.as_is else batches.rows
    width, message = wire.form(book.features, parts.dtype)
    workers, scale = parts.workers, machine.scale
    epoch = -(-round(scale * len(parts.train)) // asked.size)
    talks = drawn.asks and workers > 1
    sent = {
        "features": workers * rows["asked"] * width * message.itemsize,
        "ids": workers * (rows["asked"] * _ID_BYTES + (workers - 1) * _COUNT_BYTES) if talks else 0.0,
        "weights": 2.0 * (workers - 1) * weights * parts.dtype.itemsize,
    }
    timed = played[len(parts.looked_at) :]  # the first step warms caches and page tables up
    making, compute = (median(one[name] for one in timed) for name in ("making", "compute"))
    far = np.not_equal.outer(cluster.host, cluster.host).mean() * workers / max(workers - 1, 1)  # of peers, on average
    transfer = _transfer(sum(sent.values()), float(far), workers, cluster, machine.loopback)
    step_seconds = _overlapped(making, compute, transfer, cluster, batches.ahead)
    batch = max(one["batch"] for one in played)
    kept = batches.cache.room(book.nodes // workers) * book.features * parts.dtype.itemsize
    memory = (
        machine.process
        + scale * (parts.bytes_of_edges + kept)
        + (batches.ahead + 2) * batch
        + GAPS * max(one["live"] for one in played)
    )
    together = cluster.machine.count(0)
    features = scale * book.nodes * book.features * parts.dtype.itemsize / len(set(cluster.machine))
    return BatchOutlook(
        entry.label,
        entry.recipe,
        entry.options,
        rows,
        sent,
        round(memory),
        round(features),
        machine.memory is None or memory * together <= machine.memory,
        making,
        compute,
        transfer,
        step_seconds,
        step_seconds * epoch,
    )


class _Drawn:
    """The batches of any worker and step, and where their rows come from."""

    def __init__(self, parts: Parts, asked: BatchConfig, policy: BatchPolicy, order: SeedOrder, cluster: Cluster):
        self.parts, self.order = parts, order
        self.shares = Shares(policy.share, parts.ranges, parts.train)
        self.expander = Here(policy.sampler(asked.fanouts, parts.config.seed), parts.structure)
        near = np.equal.outer(cluster.host, cluster.host) | (asked.rows == "here")
        self.near = torch.from_numpy(near & (asked.rows != "owner"))  # [worker, owner]: read from files
        self.asks = not bool((self.near | torch.eye(parts.workers, dtype=torch.bool)).all())
        self.kept = {}
        for worker in parts.looked_at:
            own = slice(int(parts.ranges[worker]), int(parts.ranges[worker + 1]))
            room = policy.cache.room(own.stop - own.start) if self.asks else 0
            kept = torch.zeros(parts.book.nodes, dtype=torch.bool)
            if room:
                worth = row_worth(parts.structure, parts.train, asked, policy, own, parts.workers)
                nodes = torch.arange(parts.book.nodes)
                worth[self.near[worker][owner_of(nodes, parts.ranges)]] = 0
                worth[own] = 0
                kept[most_worth(worth, room)] = True
            self.kept[worker] = kept
        self._counts: dict[tuple[int, int], dict[str, int]] = {}

    def expand(self, worker: int, step: int) -> Expanded:
        found = self.expander.expand(self.shares.of(self.order.at(step), worker), step)
        owner = owner_of(found.nodes, self.parts.ranges)
        own, near = owner == worker, self.near[worker][owner]
        away = ~own & ~near
        cached = away & self.kept[worker][found.nodes]
        figures = {"own": own, "from_files": near & ~own, "cached": cached, "asked": away & ~cached}
        self._counts[worker, step] = {"read": len(owner), **{name: int(of.sum()) for name, of in figures.items()}}
        return found

    def count(self, worker: int, step: int) -> dict[str, int]:
        """Return how many rows a batch that was expanded reads, and from where."""
        return self._counts[worker, step]


@dataclass(frozen=True)
class _Trained:
    """A model with what it is trained by."""

    model: nn.Module
    view: View
    learner: Learner


@contextmanager
def _rehearsal(book: Book, config: TrainConfig, policy: Policy) -> Iterator[tuple[nn.Module, View, Learner]]:
    """Make the model of a run, on a graph of a few nodes with the features and classes of the book."""
    rows = max(2, book.classes)
    mask, none = np.ones((rows, 1), bool), np.zeros((rows, 1), bool)
    y = np.arange(rows) % book.classes
    labels = (
        y.astype(np.float32)
        if book.regression
        else np.eye(rows, book.classes, dtype=np.uint8)
        if book.multilabel
        else y
    )
    x = np.zeros((rows, book.features), np.float32)
    tiny = Graph(np.zeros(rows + 1, np.int64), np.zeros(0, np.int32), x, labels, mask, none, none, book.classes, "tiny")
    with TemporaryDirectory(prefix="isthmus-plan-") as folder, kept_blocks():
        small = partition(tiny, 1, "blocks", out=Path(folder) / "parts")
        views, model, learner = prepare(small, replace(config, split=0), policy, Hub(1).transport(0))
        try:
            yield model, views.train, learner
        finally:
            views.train.graph.runtime.close()


def _play(drawn: _Drawn, worker: int, step: int, trained: _Trained, dtype: torch.dtype) -> dict[str, float]:
    """Make the batch of a worker and train on it; return seconds and bytes."""
    parts, run = drawn.parts, trained.view.graph.runtime
    begun = time.thread_time()
    found = drawn.expand(worker, step)
    x = parts.read(found.nodes, torch.empty(len(found.nodes), parts.book.features, dtype=dtype))
    made = time.thread_time()
    seeds = found.nodes[: found.num_seeds]
    y = parts.labels.take(seeds)
    with (live := LiveBytes()) if step == 0 else nullcontext():
        trained.model.train()
        trained.learner.zero_grad(set_to_none=True)
        run.begin(step, layers=found.layers)
        loss = trained.view.loss.share(trained.model(trained.view.graph, x), y, run.transport, step, max(len(y), 1))
        run.backward(loss)
        trained.learner.step()
        run.begin(step, training=False)
    size = x.nbytes + sum(layer.inner.indices.nbytes for layer in found.layers)
    return {
        "making": made - begun,
        "compute": time.thread_time() - made,
        "batch": size,
        "live": live.peak if step == 0 else 0,
    }


def _transfer(sent: float, far: float, workers: int, cluster: Cluster, loopback: float) -> float:
    """Return the seconds that the busiest direction of a link needs: workers send and receive alike.

    ``far``: the share of peers on other hosts.
    """
    if workers == 1:
        return 0.0
    if cluster.link is None:
        return sent / workers / loopback
    return sent * far / len(set(cluster.host)) / cluster.link


def _overlapped(making: float, compute: float, transfer: float, cluster: Cluster, ahead: int) -> float:
    """Return the seconds of a step: batches are made and sent beside computing, where there are cores for both."""
    together = cluster.machine.count(0) * cluster.threads
    crowded = max(1.0, together / cluster.cores)
    if not ahead:
        return crowded * (making + compute) + transfer
    beside = cluster.cores >= 2 * together
    return max(max(making, compute) if beside else crowded * (making + compute), transfer)


def _check(asked: BatchConfig, policy: BatchPolicy, label: str) -> None:
    """Refuse what is not drawn here."""
    if asked.way == "together":
        raise InputError(
            f"plan draws batches apart, and {label!r} computes joint ones: leave it or --batch together out"
        )
    if asked.structure == "owner":
        raise InputError("plan draws where all edges are at hand: leave --structure owner out")
    if policy.cache.looks_ahead:
        raise InputError(f"{label!r} keeps rows by the coming steps, which takes a run: plan it with cache=vip")
