"""A batch as the model trains on it, and the maker of batches: a few tasks in a fixed order for every step."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from isthmus.comm import Ledger, Transport
from isthmus.device import is_host, to_device
from isthmus.minibatch.pairs import Pairing, Pairs
from isthmus.minibatch.rows import Pulled, Rows
from isthmus.minibatch.seeds import Shares
from isthmus.shard import Layer


@dataclass(frozen=True)
class Missed:
    """The neighbours that a drawn layer misses, by how much each, as a layer of its own that reads kept rows."""

    nodes: Tensor  # int64, book ids, whose kept rows it reads
    layer: Layer

    def to(self, device: torch.device) -> Missed:
        return Missed(self.nodes, self.layer.to(device))


@dataclass(frozen=True)
class Expanded:
    """The nodes that a batch reads, and its layers."""

    nodes: Tensor  # int64 [n], book ids; seed nodes first, every layer's are a prefix
    layers: tuple[Layer, ...]  # the input layer first
    counts: Tensor | None = None  # float64 [s], by how much each seed node counts in the loss of all training nodes
    pairs: Pairs | None = None  # of unsupervised training, whose layers end in all nodes of the pairs
    missed: tuple[Missed, ...] = ()  # of control variates: one for every layer of hidden rows

    @property
    def num_seeds(self) -> int:
        return self.layers[-1].num_inner


@dataclass(frozen=True)
class Batch:
    """One worker's share of a step: layers, input rows and labels, and what making it has cost."""

    step: int
    seeds: int
    """The seed nodes of all workers together, by whose number the loss is divided."""
    nodes: Tensor  # int64 [n], book ids
    layers: tuple[Layer, ...]
    x: Tensor  # [n, F]
    y: Tensor | Pairs  # of my seed nodes, [s] or [s, C], or the pairs of unsupervised training
    ledger: Ledger = field(default_factory=Ledger)
    counts: Tensor | None = None  # float64 [s], by how much they count, if not each once; see `Expanded`
    missed: tuple[Missed, ...] = ()

    @property
    def num_bytes(self) -> int:
        """The memory of its rows and edges."""
        edges = sum(layer.edge_bytes for layer in self.layers)
        return self.x.nbytes + self.nodes.nbytes + edges

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device, copied from pinned memory where that has some."""
        if is_host(device):
            return self
        layers = tuple(layer.to(device) for layer in self.layers)
        nodes, x = (to_device(tensor, device) for tensor in (self.nodes, self.x))
        y = self.y.to(device) if isinstance(self.y, Pairs) else to_device(self.y, device)
        counts = None if self.counts is None else to_device(self.counts, device)
        missed = tuple(one.to(device) for one in self.missed)
        return replace(self, nodes=nodes, layers=layers, x=x, y=y, counts=counts, missed=missed)


class Order(Protocol):
    """The seed nodes of every step, of all workers."""

    def at(self, step: int) -> Tensor:
        """Return the seed nodes of a step, int64, book ids."""


class Expander(Protocol):
    """A way to expand seed nodes into layers; every worker expands at the same time."""

    def expand(self, seeds: Tensor, step: int) -> Expanded: ...


@dataclass(frozen=True)
class Neighbourhoods:
    """The drawn neighbourhoods of any nodes, with their rows. All workers read as many in the same order."""

    expander: Expander
    rows: Rows

    def of(self, nodes: Tensor, turn: int) -> tuple[tuple[Layer, ...], Tensor]:
        """Return layers and input rows [m, F] of some of this worker's nodes (int64, its rows).

        What is drawn for a node depends on the seed alone; ``turn`` numbers the requests.
        """
        found = self.expander.expand(nodes + self.rows.requests.first, 0)
        return found.layers, self.rows.pull(found.nodes, turn)


@dataclass
class BatchMaker:
    """Makes the batches of one worker. All workers make the same batches in the same order.

    A batch is made by four tasks: take seed nodes, expand them hop by hop, pull the input rows, pull the labels. What
    each returns depends on the step alone, so tasks of several steps may be under way in any order that all workers
    share.
    """

    order: Order
    shares: Shares
    expander: Expander
    rows: Rows
    labels: Rows
    transport: Transport
    pairing: Pairing | None = None
    """The pairs of unsupervised training; None: seed nodes have labels."""
    look_ahead: int = 0
    """Steps whose nodes are drawn before the rows of a step are pulled, for a cache that wants to know them."""
    _expanded: dict[int, Expanded] = field(default_factory=dict)

    def make(self, step: int) -> Batch:
        """Make the batch of a step."""
        return self.begin(step).finish()

    def begin(self, step: int) -> Begun:
        """Draw the batch of a step and ask for its rows, which then are under way. Steps are begun in order."""
        ledger, begun = self.transport.ledger, time.perf_counter()
        waited, steps = ledger.wait_seconds, range(step, step + self.look_ahead + 1)
        self._expanded = {at: self._expanded.get(at) or self._expand(at) for at in steps}
        found = self._expanded.pop(step)
        ledger.sample_seconds += time.perf_counter() - begun - (ledger.wait_seconds - waited)
        x = self.rows.ask(found.nodes, step, coming=[self._expanded[at].nodes for at in steps[1:]])
        seeds = found.nodes[: found.num_seeds]
        y = self.labels.ask(seeds, step, "labels") if found.pairs is None else found.pairs
        return Begun(step, len(self.order.at(step)), found, x, y, ledger.take())

    def seeds(self, step: int) -> Tensor:
        """Return the seed nodes that this worker takes at a step, int64, book ids."""
        return self.shares.of(self.order.at(step), self.transport.rank)

    def _expand(self, step: int) -> Expanded:
        seeds = self.seeds(step)
        if self.pairing is None:
            return self.expander.expand(seeds, step)
        drawn = self.pairing.positive(seeds, step), self.pairing.negative(seeds, step)
        nodes, pairs = Pairs.among(seeds, *drawn)
        return replace(self.expander.expand(nodes, step), pairs=pairs)


@dataclass(frozen=True)
class Begun:
    """A batch whose rows are under way."""

    step: int
    seeds: int
    found: Expanded
    x: Pulled
    y: Pulled | Pairs
    ledger: Ledger

    def finish(self) -> Batch:
        """Wait for its rows. Batches are finished in the order of steps, by whichever thread."""
        found, x = self.found, self.x.wait(self.ledger)
        y = _labels(self.y.wait(self.ledger)) if isinstance(self.y, Pulled) else self.y
        return Batch(self.step, self.seeds, found.nodes, found.layers, x, y, self.ledger, found.counts, found.missed)


def _labels(rows: Tensor) -> Tensor:
    """Return labels [s] or [s, C] from rows of them."""
    return rows.view(-1) if rows.shape[1:] == (1,) else rows
