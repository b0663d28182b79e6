"""The worth of a kept row: how likely, or by how many nodes, it is read."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.minibatch.policy import BatchConfig, BatchPolicy
from isthmus.minibatch.vip import read_probability, wanted_probability
from isthmus.sample import Structure


def row_worth(
    structure: Structure, train: Tensor, asked: BatchConfig, policy: BatchPolicy, own: slice, workers: int
) -> Tensor:
    """Return the worth of every node's row to the worker with the book ids ``own``, one of ``workers``, float64 [N].

    By degree: the number of nodes that read it. Else the probability that a batch of that worker reads it.
    ``structure`` is that of the whole graph, ``train`` are all training nodes (int64, book ids).
    """
    if policy.cache.order == "degree":
        return torch.bincount(structure.pattern.indices, minlength=structure.num_rows).double()
    seeds = torch.zeros(structure.num_rows, dtype=torch.float64)
    seeds[train] = min(1.0, asked.size / len(train))
    if asked.way == "together":
        frontier = read_probability(structure, seeds, asked.fanouts[:-1])
        return wanted_probability(structure, frontier, asked.fanouts[-1], own)
    mine = torch.zeros_like(seeds)
    if policy.share == "owner":
        mine[own] = seeds[own]
    else:
        mine = seeds / workers
    return read_probability(structure, mine, asked.fanouts)
