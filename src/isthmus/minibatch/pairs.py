"""Pairs of nodes for unsupervised training: for every seed node a node near it and some far from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Transport, Where
from isthmus.device import to_device
from isthmus.errors import InputError
from isthmus.sample import Expansion, NeighbourSampler, Structure
from isthmus.sample.joint import below

_WALK, _NEGATIVE = 0x9051, 0x4E66
_TRIES = 8
_UNIT = 1 << 10
BY = ("uniform", "degree")


@dataclass(frozen=True)
class PairPolicy:
    """The rules by which the nodes are drawn that a seed node is compared with."""

    walk: int = 1
    """Steps of the walk from a seed node to its positive; 1: a neighbour."""
    negatives: int = 1
    by: str = "uniform"
    """How negatives are drawn: every node as likely, or in proportion to degree^0.75."""

    def __post_init__(self) -> None:
        if self.walk < 1 or self.negatives < 1:
            raise InputError(f"walk and negatives must be at least 1, not {self.walk} and {self.negatives}")
        if self.by not in BY:
            raise InputError(f"unknown by={self.by}: negatives are drawn by one of {', '.join(BY)}")


@dataclass(frozen=True)
class Pairs:
    """The pairs of a batch, as places among the rows that the model gives; its seed nodes are the first rows."""

    positive: Tensor  # int64 [s]
    negative: Tensor  # int64 [s, Q]

    def __len__(self) -> int:
        return len(self.positive)

    def to(self, device: torch.device) -> Pairs:
        return Pairs(to_device(self.positive, device), to_device(self.negative, device))

    @staticmethod
    def among(seeds: Tensor, positive: Tensor, negative: Tensor) -> tuple[Tensor, Pairs]:
        """Return all nodes of some pairs (int64 [s], [s], [s, Q]), each once and seed nodes first, and their places."""
        nodes, place = first_met(torch.cat([seeds, positive, negative.flatten()]))
        s = len(seeds)
        return nodes, Pairs(place[s : 2 * s], place[2 * s :].view(negative.shape))


def first_met(every: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct ones of some nodes (int64) in the order in which they come, and the place of each there."""
    nodes, place = every.unique(return_inverse=True)
    first = torch.full_like(nodes, len(every))
    first.scatter_reduce_(0, place, torch.arange(len(every)), "amin")
    order = first.argsort()
    number = torch.empty_like(order)
    number[order] = torch.arange(len(order))
    return nodes[order], number[place]


class Neighbourly(Protocol):
    """An expander that also draws the neighbours of any nodes; where it asks owners, all workers do at once."""

    structure: Structure

    def neighbours(
        self, frontier: Tensor, step: int, hop: int, sampler: NeighbourSampler | None = None
    ) -> Expansion: ...


class Pairing:
    """Draws the positives and negatives of seed nodes, each a function of (seed, step, node) in original ids.

    So any number of workers draws the same pairs, and a run resumes at any step.
    """

    def __init__(self, policy: PairPolicy, expander: Neighbourly, seed: int, own: tuple[Tensor, Tensor], to: Transport):
        """``own``: original ids and degrees of this worker's nodes; all workers call it at the same time."""
        self.policy, self.expander, self.seed = policy, expander, seed
        self.walker = NeighbourSampler((1,) * policy.walk, seed=kernels.stream(_WALK, seed))
        every = torch.cat(to.all_gather(torch.stack(own, dim=1), Where("pairs", "setup", 0, "ids")))
        self.original = every[:, 0].contiguous()  # by book id
        self.by_id = self.original.argsort()  # book ids in the order of original ids, which no partition changes
        # Roots are rounded exactly on every machine, so these whole numbers are the same everywhere.
        degree = every[:, 1][self.by_id].double().sqrt()
        share = (degree * degree.sqrt() * _UNIT).long() if policy.by == "degree" else torch.ones_like(self.by_id)
        self.chances = share.cumsum(0)
        if not len(share) or not int(self.chances[-1]):
            raise InputError("negatives are drawn by degree, and no node has a neighbour: give by=uniform")

    def positive(self, seeds: Tensor, step: int) -> Tensor:
        """Return the end of each seed node's walk (int64, book ids); it stays where a node has no neighbours."""
        at = seeds
        for hop in range(self.policy.walk):
            drawn = self.expander.neighbours(at, step, hop, self.walker)
            moves = drawn.indptr.diff() > 0
            at = at.clone()
            at[moves] = drawn.neighbours.long()
        return at

    def negative(self, seeds: Tensor, step: int) -> Tensor:
        """Return nodes that are neither a seed node itself nor its neighbours, int64 [s, Q], book ids.

        One that is gets drawn again; after eight times it stays, for nodes that have nearly all others as neighbours.
        """
        count = self.policy.negatives
        slot = (self.original[seeds][:, None] * count + torch.arange(count)).flatten()
        of = seeds.repeat_interleave(count)
        found, again = torch.empty_like(of), torch.arange(len(of))
        for attempt in range(_TRIES):
            stream = kernels.stream(_NEGATIVE, self.seed, step, attempt)
            place = below(stream, slot[again], self.chances[-1])
            found[again] = self.by_id[torch.searchsorted(self.chances, place, right=True)]
            again = again[self._is_near(of[again], found[again])]
            if not len(again):
                break
        return found.view(len(seeds), count)

    def _is_near(self, nodes: Tensor, others: Tensor) -> Tensor:
        """Return whether each other node (int64, book ids) is the node itself or one of its neighbours.

        Neighbours stand in the order of their original ids, so a search by halves finds them.
        """
        structure = self.expander.structure
        indptr, indices, rows = structure.pattern.indptr, structure.pattern.indices, structure.rows_of(nodes).long()
        wanted, low, high = self.original[others], indptr[rows], indptr[rows + 1]
        ends = high
        for _ in range(int((high - low).max()).bit_length() if len(rows) else 0):
            middle = (low + high) // 2
            inside = low < high
            name = self._name(structure, indices[middle.clamp_max(len(indices) - 1)])
            before = inside & (name < wanted)
            low, high = torch.where(before, middle + 1, low), torch.where(inside & ~before, middle, high)
        found = low < ends
        if len(indices):
            found &= self._name(structure, indices[low.clamp_max(len(indices) - 1)]) == wanted
        return found | (nodes == others)

    @staticmethod
    def _name(structure: Structure, columns: Tensor) -> Tensor:
        return columns.long() if structure.original is None else structure.original[columns.long()]
