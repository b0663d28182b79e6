"""Gather rows of given nodes on worker 0 from their owners."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from isthmus.comm import Transport, Where
from isthmus.engine.predictions import Column, Known

WHERE = Where("predictions", "gather", 0)


class OwnRows:
    """The rows that a worker has for its n inner nodes."""

    def __init__(self, nodes: np.ndarray, known: Known, transport: Transport):
        self.known, self.transport = known, transport
        self.order = np.argsort(nodes)
        self.ranked = nodes[self.order]

    def gather(self, ids: np.ndarray, columns: Sequence[Column]) -> dict[str, np.ndarray]:
        """Return on worker 0 the columns of k nodes, [k] or [k, width], gathered from their owners; elsewhere nothing.

        Every worker passes the same ids, in any order; ids may be repeated.
        """
        first = np.searchsorted(self.ranked, ids, "left")
        mine = np.flatnonzero(first < np.searchsorted(self.ranked, ids, "right"))
        known = self.known.take(torch.from_numpy(self.order[first[mine]]))
        places = _to_first(torch.from_numpy(mine), self.transport)
        block = {}
        for column in columns:
            pieces = _to_first(column.of(known), self.transport)
            if self.transport.rank == 0:
                whole = torch.empty(len(ids), *column.shape, dtype=column.dtype)
                for place, piece in zip(places, pieces, strict=True):
                    whole[place] = piece
                block[column.name] = column.values(whole)
        return block


def _to_first(rows: Tensor, transport: Transport) -> list[Tensor]:
    """Return on worker 0 the rows of every worker, of any lengths, in rank order; elsewhere nothing."""
    lengths = torch.zeros(transport.size, dtype=torch.int64)
    lengths[transport.rank] = len(rows)
    transport.all_reduce(lengths, WHERE)
    nothing = [rows[:0]] * (transport.size - 1)
    if transport.rank == 0:
        arriving = [rows, *(rows.new_empty(int(n), *rows.shape[1:]) for n in lengths[1:])]
    else:
        arriving = [rows[:0], *nothing]
    transport.exchange([rows, *nothing], arriving, WHERE).wait()
    return arriving
