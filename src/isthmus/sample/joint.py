"""Joint batches: one batch of all workers, which each of them draws alike from the edges of all parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Transport
from isthmus.sample.blocks import Blocks
from isthmus.sample.structure import Structure

_UNIT = 1 << 20


@dataclass(frozen=True)
class Scene:
    """Everything that joint batches are drawn from. Nodes are book ids, which are the rows of the structure."""

    structure: Structure  # of the whole graph
    train: Tensor  # int64 [T], the training nodes of all workers
    seeds: Callable[[int], Tensor]  # the training nodes of a step, if they come in batches of --batch-size
    layers: int
    size: int  # --batch-size
    seed: int
    weighted: bool  # whether every edge counts by the weight that it carries

    @property
    def original(self) -> Tensor:
        """The original ids of all nodes, int64 [N]."""
        own = self.structure.original
        return torch.arange(self.structure.num_rows) if own is None else own

    def degree_of(self, nodes: Tensor) -> Tensor:
        """Return the number of neighbours of some nodes in the whole graph, int64."""
        indptr = self.structure.pattern.indptr
        return indptr[nodes + 1] - indptr[nodes]

    def ascending(self, nodes: Tensor) -> Tensor:
        """Return nodes in the order of their original ids, which no partition changes."""
        return nodes[torch.argsort(self.original[nodes])]


class JointDraw(Protocol):
    """The draws of one run: functions of the step, the same on every worker."""

    def at(self, step: int) -> Tensor:
        """Return the seed nodes of a step, int64."""

    def blocks(self, step: int) -> Blocks:
        """Return the batch of a step, whose first nodes are these seed nodes in this order."""


class JointSampler(Protocol):
    """A way to draw joint batches."""

    @property
    def sized(self) -> bool:
        """Whether --batch-size says how large batches are."""

    def start(self, scene: Scene, transport: Transport) -> JointDraw:
        """Return the draws of a run; every worker calls it at the same time."""

    def steps_per_epoch(self, nodes: int, labelled: int, size: int) -> int:
        """Return the steps after which a graph of so many nodes counts as seen once."""


def squared_entries(targets: Tensor, sources: Tensor) -> Tensor:
    """Return the squares of GCN's propagation matrix at edges between nodes of these degrees, as whole numbers.

    1 / ((d_v + 1) (d_u + 1)) in units of 2^-20, at least one: their sums do not depend on the order of the edges, and
    over a whole graph they stay below 2^53.
    """
    return (_UNIT // ((targets + 1) * (sources + 1))).clamp_min(1)


def column_norms(structure: Structure) -> Tensor:
    """Return the squared norm of every node's column of that matrix, self loops included; int64 [N]."""
    pattern, degree = structure.pattern, structure.degree
    source = pattern.indices.long()
    return squared_entries(degree, degree).index_add_(
        0, source, squared_entries(degree[pattern.edge_rows], degree[source])
    )


def choose(stream: int, count: int, cumulated: Tensor) -> Tensor:
    """Draw ``count`` of some things with replacement, int64; ``cumulated`` (int64) are the sums of their weights.

    Weights are whole numbers, with a sum below 2^53, and draw i takes the thing at floor(u_i · sum), u_i a multiple of
    2^-53 that is a function of (stream, i): one rounded product decides, the same on every machine.
    """
    return torch.searchsorted(cumulated, below(stream, torch.arange(count), cumulated[-1]), right=True)


def below(stream: int, ids: Tensor, limits: Tensor) -> Tensor:
    """Return a random whole number below its limit (int64, at least 1 and below 2^53) for every id, int64."""
    unit = ((kernels.random_keys(stream, ids) >> 11) & (2**53 - 1)).double() * 2.0**-53
    return (unit * limits.double()).long().clamp_max(limits - 1)
