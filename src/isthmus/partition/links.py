"""Count the rows of a parts folder that cross each link, leg by leg, from its files."""

from __future__ import annotations

import numpy as np
import torch

from isthmus.errors import InputError
from isthmus.kernels import Csr
from isthmus.partition.book import Book
from isthmus.partition.border import READ, SUMMED
from isthmus.partition.cover import gathered_targets
from isthmus.partition.quality import Legs, Messages


def legs_of(book: Book) -> Legs:
    """Return the rows that each part sends to each other part in one exchange of the forward pass."""
    scatter, gather = (np.zeros((book.num_parts, book.num_parts), np.int64) for _ in range(2))
    for k in range(book.num_parts):
        read, summed = mirrors_of(book, k)
        scatter[:, k] = [len(rows) for rows in read]
        if book.cut == "cover":
            gather[:, k] = [len(rows) for rows in summed]
        else:
            gather[k] = [len(rows) for rows in summed]
    return Legs(scatter, gather, np.zeros_like(scatter))


def mirrors_of(book: Book, k: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return per other part the rows that it scatters to part k, and those of the gather leg of part k's edges.

    Rows are local ids of their owners. Partial sums of a vertex-cut are made by part k for owner q; those of a cover
    cut are made by q for the targets of part k.
    """
    part = book.part(k)
    groups = [slice(*part.halo_ptr[q : q + 2]) for q in range(book.num_parts)]
    if part.halo_legs is not None:
        legs, rows = part.halo_legs, part.halo_rows
        chosen = [[rows[group][legs[group] & leg != 0] for group in groups] for leg in (READ, SUMMED)]
        return chosen[0], chosen[1]
    if part.cover is None:
        return [part.halo_rows[group] for group in groups], [part.halo_rows[:0] for _ in groups]
    indptr, indices = (torch.from_numpy(np.array(array)) for array in (part.halo_indptr, part.halo_indices))
    halo, covered = Csr(indptr, indices, len(part.cover)), torch.from_numpy(np.array(part.cover))
    targets = gathered_targets(halo, part.halo_ptr.tolist(), covered)
    return [part.halo_rows[group][part.cover[group]] for group in groups], [rows.numpy() for rows in targets]


def messages(book: Book, hosts: int) -> Messages:
    """Return the rows that every part sends within its host and to others, parts being on hosts in equal blocks.

    ``outer_rows`` is what crosses between hosts in training: a row is sent to a host once, and partial sums are added
    on their host first; of a node on h hosts h − 1 rows per leg. ``by_leg`` has these rows by leg and sending host, and
    the rows that are passed on or added within each host.
    """
    if not 1 <= hosts <= book.num_parts:
        raise InputError(f"{book.num_parts} parts cannot be on {hosts} hosts: give --hosts from 1 to {book.num_parts}")
    host = np.arange(book.num_parts) * hosts // book.num_parts
    legs, same = legs_of(book).both, host[:, None] == host
    relayed = _relayed(book, host)
    return {
        "hosts": hosts,
        "inner_messages": np.where(same, legs, 0).sum(axis=1).tolist(),
        "outer_messages": np.where(same, 0, legs).sum(axis=1).tolist(),
        "outer_rows": sum(sum(of_host["outer"]) for of_host in relayed.values()),
        "by_leg": relayed,
    }


def _relayed(book: Book, host: np.ndarray) -> dict[str, dict[str, list[int]]]:
    """Count by leg the rows that each host sends to others and within itself, where each crosses to a host once."""
    hosts, found = int(host[-1]) + 1, {}
    for leg, name in enumerate(("scatter", "gather")):
        mirrors = [np.empty((0, 3), np.int64)]  # node, the host of its owner, the host of the mirror
        for k in range(book.num_parts):
            for q, rows in enumerate(mirrors_of(book, k)[leg]):
                sums = leg == 1 and book.cut == "cover"  # made by q for nodes of k
                owner, mirror = (k, q) if sums else (q, k)
                node = rows.astype(np.int64) + book.ranges[owner]
                ends = np.broadcast_to([host[owner], host[mirror]], (len(rows), 2))
                mirrors.append(np.column_stack([node, ends]))
        pairs, count = np.unique(np.concatenate(mirrors), axis=0, return_counts=True)
        home, there = pairs[:, 1], pairs[:, 2]
        far, sender = home != there, home if leg == 0 else there
        found[name] = {
            "inner": np.bincount(there, count - far, minlength=hosts).astype(int).tolist(),
            "outer": np.bincount(sender[far], minlength=hosts).tolist(),
        }
    return found
