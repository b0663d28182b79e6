"""The probability that a batch reads a node, by propagating those of the seed nodes through the sampler (SALIENT++)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from isthmus.sample import Structure

_CHUNK = 1 << 22  # edges that are looked at together
_CERTAIN = 1e-15  # the smallest probability of being left out that counts


def read_probability(structure: Structure, seeds: Tensor, fanouts: tuple[int, ...]) -> Tensor:
    r"""Return the probability that each node is among those of a batch, float64 [N], from that of being a seed node.

    .. math:: p_{k+1}(u) = 1 - (1 - p_k(u)) \prod_{v:\, u \in N(v)} \bigl(1 - p_k(v) \min(1, f_k / d_v)\bigr)

    as if draws of different nodes were independent. ``structure`` is that of the whole graph.
    """
    found = seeds
    for fanout in fanouts:
        found = 1 - (1 - found) * _left_out(structure, found, fanout)
    return found


def wanted_probability(structure: Structure, frontier: Tensor, fanout: int, rows: slice) -> Tensor:
    """Return the probability that each node is a neighbour drawn for one of some rows, float64 [N].

    ``frontier``: the probability that each node draws neighbours, float64 [N].
    """
    mine = torch.zeros_like(frontier)
    mine[rows] = frontier[rows]
    return 1 - _left_out(structure, mine, fanout)


def _left_out(structure: Structure, draws: Tensor, fanout: int) -> Tensor:
    """Return the probability that each node is drawn by none, given the probability that each draws, float64 [N]."""
    pattern, degree = structure.pattern, structure.degree.clamp_min(1)
    share = torch.ones_like(draws) if fanout < 0 else (fanout / degree.double()).clamp_max(1.0)
    logs = (1 - draws * share).clamp_min(_CERTAIN).log()
    total = torch.zeros_like(draws)
    for first, last in row_chunks(pattern.indptr, _CHUNK):
        begin, end = int(pattern.indptr[first]), int(pattern.indptr[last])
        counts = pattern.indptr[first : last + 1].diff()
        total.index_add_(0, pattern.indices[begin:end], torch.repeat_interleave(logs[first:last], counts))
    return total.exp()


def row_chunks(indptr: Tensor, edges: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows with about that many edges each, at least one row, in order."""
    first, rows = 0, len(indptr) - 1
    while first < rows:
        last = int(torch.searchsorted(indptr, indptr[first] + edges, right=True)) - 1
        yield first, (last := min(max(last, first + 1), rows))
        first = last
