"""The seed nodes of every step: one order of the training nodes per epoch, cut into batches, dealt out to workers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Transport, Where

_SALT = 0x5EED
SHARES = {
    "owner": "each seed node to the worker that owns it",
    "even": "as many training nodes to every worker: equal ranges of them, in the order of the parts (DistDGL)",
    "position": "equal pieces of every batch",
}


class SeedOrder:
    """The order in which training nodes are seeds: a permutation per epoch, a function of (seed, epoch, original ids).

    Step t takes the next ``size`` of it, the last step of an epoch what is left. Any worker can compute any step, so
    every number of workers has the same batches, and a run resumes at any step.
    """

    def __init__(self, nodes: Tensor, original: Tensor, size: int, seed: int):
        """``nodes``: the training nodes of all workers (int64 [T], book ids); ``original``: their original ids."""
        order = torch.argsort(original)
        self.nodes, self.original, self.size, self.seed = nodes[order], original[order], size, seed
        self._epoch: tuple[int, Tensor] = (-1, nodes[:0])

    @staticmethod
    def of_workers(mine: Tensor, original: Tensor, size: int, seed: int, transport: Transport) -> SeedOrder:
        """Return the order of all workers' training nodes; each brings its own (int64, book and original ids)."""
        both = torch.stack([mine, original], dim=1)
        every = torch.cat(transport.all_gather(both, Where("seed nodes", "setup", 0, "ids")))
        return SeedOrder(every[:, 0].contiguous(), every[:, 1].contiguous(), size, seed)

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.nodes) // self.size)

    def at(self, step: int) -> Tensor:
        """Return the seed nodes of a step, int64 [at most ``size``], book ids."""
        epoch, within = divmod(step, self.steps_per_epoch)
        known, nodes = self._epoch
        if known != epoch:  # written whole, since several threads may ask for different epochs
            keys = kernels.random_keys(kernels.stream(_SALT, self.seed, epoch), self.original)
            nodes = self.nodes[torch.argsort(keys, stable=True)]
            self._epoch = epoch, nodes
        return nodes[within * self.size : (within + 1) * self.size]


@dataclass(frozen=True)
class Shares:
    """Which worker takes which seed node of a step; worker q owns the book ids ``ranges[q]:ranges[q+1]``."""

    how: str
    ranges: Tensor  # int64 [P+1]
    nodes: Tensor  # int64 [T], all training nodes, ascending; only for "even"

    def of(self, seeds: Tensor, worker: int) -> Tensor:
        """Return the seed nodes that a worker takes, in their order."""
        workers = len(self.ranges) - 1
        match self.how:
            case "position":
                return seeds.tensor_split(workers)[worker]
            case "even":
                place = torch.searchsorted(self.nodes, seeds) * workers // max(len(self.nodes), 1)
                return seeds[place == worker]
        return seeds[owner_of(seeds, self.ranges) == worker]


def owner_of(nodes: Tensor, ranges: Tensor) -> Tensor:
    """Return the worker that owns each node, int64; ``ranges`` int64 [P+1] are the workers' first book ids."""
    return torch.searchsorted(ranges, nodes, right=True) - 1
