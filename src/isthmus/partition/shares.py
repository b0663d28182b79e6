"""Assign parts to workers: one each, or blocks of consecutive parts if there are fewer workers than parts."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.errors import InputError
from isthmus.partition.book import Book
from isthmus.partition.join import join
from isthmus.partition.part import Part


def shares(book: Book, workers: int) -> list[range]:
    """Return the parts of every worker: blocks of consecutive parts, with the largest number of edges minimal."""
    if not 1 <= workers <= book.num_parts:
        raise InputError(
            f"{book.folder} has {book.num_parts} parts but {workers} workers: "
            f"use --workers {book.num_parts} or fewer, or partition again with --parts {workers}"
        )
    loads = [part.edges for part in book.parts]
    enough, too_little = sum(loads), max(loads) - 1
    while enough - too_little > 1:
        limit = (enough + too_little) // 2
        if len(_blocks(loads, workers, limit)) == workers:
            enough = limit
        else:
            too_little = limit
    return _blocks(loads, workers, enough)


def _blocks(loads: Sequence[int], workers: int, limit: int) -> list[range]:
    """Return as few blocks as the limit allows, but at least one per worker."""
    begins, load = [0], 0
    for k, more in enumerate(loads):
        scarce = len(loads) - k <= workers - len(begins)
        if k and (load + more > limit or scarce):
            begins.append(k)
            load = 0
        load += more
    return [range(first, last) for first, last in zip(begins, [*begins[1:], len(loads)], strict=True)]


def own_part(book: Book, worker: int, workers: int) -> Part:
    """Return the part that a worker trains: one as it is on disk, or the join of several."""
    blocks = shares(book, workers)
    parts = [book.part(k) for k in blocks[worker]]
    return parts[0] if workers == book.num_parts else join(parts, blocks, book.ranges)
