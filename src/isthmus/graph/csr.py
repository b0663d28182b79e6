"""Turn an edge list into CSR without self loops or duplicates, by one in-place sort of 64-bit keys, dst << 32 | src."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

BLOCK = 1 << 24  # edges handled at a time: temporaries stay below a few hundred MB


@dataclass(frozen=True)
class Csr:
    """A graph in CSR form: row i lists the sources of the edges into i, ascending.

    ``order`` maps each edge to its position in the input.
    """

    indptr: np.ndarray  # int64 [N+1]
    indices: np.ndarray  # int32 [E]
    order: np.ndarray | None  # int64 [E], only when asked for
    self_loops: int  # dropped
    duplicates: int  # merged
    symmetric: bool
    parallel: tuple[np.ndarray, np.ndarray] | None = None  # positions of equal edges, and of the merged ones after them
    runs: tuple[np.ndarray, np.ndarray] | None = None  # positions of all edges, sorted, and where runs of equals begin


def pack(src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """Return one int64 key per edge, ordered by (dst, src). Ids must be below 2³¹."""
    keys = np.empty(len(src), np.int64)
    pack_into(keys, src, dst)
    return keys


def pack_into(keys: np.ndarray, src: np.ndarray, dst: np.ndarray) -> None:
    for a in range(0, len(keys), BLOCK):
        part = slice(a, a + BLOCK)
        np.left_shift(dst[part], 32, out=keys[part], dtype=np.int64, casting="unsafe")
        keys[part] |= src[part].astype(np.int64, copy=False)


def sources(keys: np.ndarray) -> np.ndarray:
    """Return the low half of every key, as a view."""
    return keys.view(np.int32)[0 if sys.byteorder == "little" else 1 :: 2]


def targets(keys: np.ndarray) -> np.ndarray:
    """Return the high half of every key, as a view."""
    return keys.view(np.int32)[1 if sys.byteorder == "little" else 0 :: 2]


def to_multi_csr(keys: np.ndarray, num_nodes: int, given: int) -> tuple[Csr, int]:
    """Return the CSR form of the packed ``keys`` with parallel edges, and the number of edges that have others beside.

    The first ``given`` keys were in the input, the others are their reverses. An edge that was given both ways is one
    edge: of either direction as many stay as were given of the one that was given more often.
    """
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    proper = sources(keys) != targets(keys)
    loops = len(keys) - int(np.count_nonzero(proper))
    keys, order = keys[proper], order[proper]
    starts, is_given = run_starts(keys), order < given
    lengths = np.diff(np.append(starts, len(keys)))
    counts = np.add.reduceat(is_given.astype(np.int64), starts) if len(keys) else lengths
    stays = is_given == np.repeat(2 * counts >= lengths, lengths)
    keys, order = keys[stays], order[stays]
    symmetric = fingerprint(keys) == fingerprint(keys, swap=True)
    found = Csr(_row_starts(keys, num_nodes), sources(keys).copy(), order, loops, 0, symmetric)
    lengths = np.diff(np.append(run_starts(keys), len(keys)))
    return found, int(lengths[lengths > 1].sum())


def run_starts(keys: np.ndarray) -> np.ndarray:
    """Return where runs of equal keys begin."""
    return np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else np.empty(0, np.int64)


def to_csr(keys: np.ndarray, num_nodes: int, *, keep_order: bool = False, keep_all: bool = False) -> Csr:
    """Sort the packed ``keys`` in place (they are used up) and return the CSR form of their distinct edges.

    ``keep_order``: also the positions of the edges in the input; ``keep_all``: and of those that were merged.
    """
    order = parallel = runs = None
    if keep_order:  # stable, so that the first of several equal edges is the one that stays
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        again = np.flatnonzero((keys[1:] == keys[:-1]) & (sources(keys) != targets(keys))[1:]) + 1
        parallel = order[again - 1], order[again]
        if keep_all:
            proper = sources(keys) != targets(keys)
            kinds = keys[proper]
            runs = order[proper], run_starts(kinds)
    else:
        keys.sort()
    total = len(keys)
    kept, self_loops = _compact(keys, order)
    keys, order = keys[:kept], order[:kept] if order is not None else None
    indptr = _row_starts(keys, num_nodes)
    symmetric = fingerprint(keys) == fingerprint(keys, swap=True)
    return Csr(indptr, sources(keys).copy(), order, self_loops, total - kept - self_loops, symmetric, parallel, runs)


def _row_starts(keys: np.ndarray, num_nodes: int) -> np.ndarray:
    """Return where the edges of each row begin among sorted keys, int64 [N+1]."""
    indptr = np.zeros(num_nodes + 1, np.int64)
    for a in range(0, len(keys), BLOCK):
        # Keys are sorted, so each block touches one short run of rows.
        rows = targets(keys[a : a + BLOCK])
        first = int(rows[0])
        count = np.bincount(rows - rows[0])
        indptr[first + 1 : first + 1 + len(count)] += count
    return np.cumsum(indptr, out=indptr)


def _compact(keys: np.ndarray, order: np.ndarray | None) -> tuple[int, int]:
    """Move the distinct keys without self loops to the front, block by block; return (number kept, self loops)."""
    kept = loops = 0
    last = np.int64(-1)
    for a in range(0, len(keys), BLOCK):
        block = keys[a : a + BLOCK]
        loop = sources(block) == targets(block)
        new = np.empty(len(block), bool)
        new[0] = block[0] != last
        np.not_equal(block[1:], block[:-1], out=new[1:])
        last = block[-1]
        loops += int(np.count_nonzero(loop))
        new &= ~loop
        if order is not None:
            chosen = order[a : a + BLOCK][new]
            order[kept : kept + len(chosen)] = chosen
        block = block[new]
        keys[kept : kept + len(block)] = block
        kept += len(block)
    return kept, loops


def fingerprint(keys: np.ndarray, *, swap: bool = False) -> int:
    """Return the sum of a 64-bit hash of every edge; different edge sets have the same sum with probability 2⁻⁶⁴.

    An edge set is symmetric when its fingerprint equals that of its reversed edges: no second sort is needed.
    """
    total = 0
    for a in range(0, len(keys), BLOCK):
        h = keys[a : a + BLOCK].view(np.uint64)
        h = (h << np.uint64(32)) | (h >> np.uint64(32)) if swap else h.copy()
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # the finaliser of SplitMix64
            h ^= h >> np.uint64(shift)
            h *= np.uint64(factor)
        h ^= h >> np.uint64(31)
        total += int(h.sum(dtype=np.uint64))
    return total % 2**64


def with_reverses(keys: np.ndarray) -> np.ndarray:
    """Return the keys followed by those of the reversed edges."""
    both = np.empty(2 * len(keys), np.int64)
    both[: len(keys)] = keys
    pack_into(both[len(keys) :], targets(keys), sources(keys))
    return both


def missing_reverses(csr: Csr) -> tuple[int, int, int]:
    """Return how many edges have no reverse, and (source, target) of the first of them."""
    n = len(csr.indptr) - 1
    dst = np.repeat(np.arange(n, dtype=np.int32), np.diff(csr.indptr))
    keys, back = pack(csr.indices, dst), pack(dst, csr.indices)
    back.sort()
    kinds, counts = np.unique(keys, return_counts=True)
    more = counts - (np.searchsorted(back, kinds, "right") - np.searchsorted(back, kinds, "left"))
    lonely = kinds[more > 0]
    return int(more[more > 0].sum()), int(sources(lonely)[0]), int(targets(lonely)[0])
