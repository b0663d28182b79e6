"""The blocks of a mini-batch, one per layer, and the numbers that its nodes have in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.errors import InputError
from isthmus.kernels import Csr


class Expansion(NamedTuple):
    """The neighbours drawn for the m nodes of a frontier: those of node i at ``indptr[i]:indptr[i+1]``.

    Multiplied by ``scale`` (or, per edge, by ``weight``), a sum over drawn neighbours is on average that over all.
    """

    indptr: Tensor  # int64 [m + 1]
    neighbours: Tensor  # [e], int64 book ids (int32 where local numbers are book ids)
    scale: Tensor  # float64 [m]
    weight: Tensor | None = None  # float64 [e], of draws by weight: then `scale` is one
    edges: Tensor | None = None  # int64 [e], ids of the drawn edges; only if asked for
    data: Tensor | None = None  # [e] or [e, D], what the drawn edges carry; only if the structure has it


@dataclass(frozen=True)
class Block:
    """One block: the drawn edges into the first t nodes of a batch from its first s, t ≤ s."""

    csr: Csr  # t × s
    scale: Tensor  # float64 [t]
    weight: Tensor | None = None  # float64 [edges]
    edges: Tensor | None = None  # int64 [edges]
    data: Tensor | None = None  # [edges] or [edges, D]


@dataclass(frozen=True)
class Blocks:
    """A mini-batch. Its nodes stand in the order in which they were met, seeds first: every layer's are a prefix."""

    nodes: Tensor  # int64 [n], book ids
    original: Tensor  # int64 [n]
    degree: Tensor | None  # int64 [n], numbers of neighbours in the whole graph; None where they are not known here
    layers: tuple[Block, ...]  # the input layer first
    num_seeds: int
    counts: Tensor | None = None  # float64 [num_seeds], by how much each seed node counts in the loss
    weighted_degree: Tensor | None = None  # float64 [n], where edges count by their weights


class Numbering:
    """Numbers for the nodes of a batch, by a table over all nodes of the graph that is reused from batch to batch.

    An entry counts only if it is at least ``base``, which rises past all numbers of a batch when the next one starts:
    so the table need not be cleared. Each thread that makes batches has its own.
    """

    def __init__(self, num_nodes: int):
        self.num_nodes = num_nodes
        self._table = torch.zeros(num_nodes, dtype=torch.int32)
        self._base, self._known = 1, 0
        self._nodes = torch.empty(0, dtype=torch.int64)

    def start(self, seeds: Tensor) -> None:
        """Forget the last batch, and give these nodes (distinct; int32 or int64) the first numbers."""
        self._base += self._known
        if self._base + self.num_nodes >= 2**32:
            self._table.zero_()
            self._base = 1
        if self._nodes.dtype != seeds.dtype or not len(self._nodes):
            self._nodes = torch.empty(self.num_nodes + 1, dtype=seeds.dtype)  # touched only as far as it is used
        self._known = 0
        self._number(seeds)
        if self._known != len(seeds):
            raise InputError(f"{len(seeds) - self._known} of {len(seeds)} seed nodes are repeated: give each once")

    def add(self, indptr: Tensor, neighbours: Tensor) -> Csr:
        """Number the neighbours of a frontier; return its block, frontier × all nodes with a number so far.

        The frontier is the first ``len(indptr) - 1`` of `nodes`.
        """
        return Csr(indptr, self._number(neighbours), self._known)

    def find(self, nodes: Tensor) -> Tensor:
        """Return the numbers of nodes, int64, and -1 for those that have none."""
        number = (self._table[nodes.long()].long() & 0xFFFFFFFF) - self._base
        return torch.where((number >= 0) & (number < self._known), number, -1)

    @property
    def nodes(self) -> Tensor:
        """The nodes that have numbers, in their order; a view that is good until the next `start`."""
        return self._nodes[: self._known]

    def _number(self, nodes: Tensor) -> Tensor:
        numbers, self._known = kernels.number_nodes(nodes, self._base, self._table, self._nodes, self._known)
        return numbers
