"""The rows that every worker is expected to pull for a batch, before anything is trained."""

from __future__ import annotations

import torch

from isthmus.minibatch.vip import read_probability
from isthmus.partition import Book
from isthmus.sample import Structure
from isthmus.shard.load import as_tensor


def expected_rows(book: Book, size: int, fanouts: tuple[int, ...], split: int = 0) -> list[float]:
    """Return how many rows of other parts each part's batch reads on average, of ``size`` seed nodes over all parts.

    Each seed node is taken by its owner, and neighbours are drawn uniformly, as if draws of different nodes were
    independent.
    """
    structure, found = Structure.of_book(book, numbered=False), []
    chance = min(1.0, size / max(book.train[split], 1))
    for index in range(book.num_parts):
        own = slice(book.ranges[index], book.ranges[index + 1])
        seeds = torch.zeros(book.nodes, dtype=torch.float64)
        seeds[own] = chance * as_tensor(book.part(index).train_mask[:, split]).double()
        reads = read_probability(structure, seeds, fanouts)
        found.append(float(reads.sum() - reads[own].sum()))
    return found
