"""The channel, stage by stage and in combination, against what its stages say, on links drawn by hand.

Rows are planted so that each is recognisable: 100 · sender + row + step / 1000, plus a little wave over the features.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from oracle.coded import bf16, fp16, nearest

from isthmus.comm import (
    BACKWARD,
    FORWARD,
    Add,
    All,
    Buffers,
    Changed,
    Channel,
    Clip,
    Every,
    Gap,
    Hub,
    Keep,
    Links,
    Replace,
    Ring,
    Smooth,
    Stages,
    codec,
)
from isthmus.comm.state import restore, state_of
from isthmus.errors import InputError

WORKERS, INNER, WIDTH, STEPS = 3, 10, 7, 9
WAVE = 0.3 * np.sin(1 + np.arange(WIDTH))
READ = {  # (owner, reader): which of the owner's ten rows; one link is empty
    (0, 1): [0, 2, 3, 9],
    (0, 2): [1, 2],
    (1, 0): [4, 5, 6, 7, 8, 9, 0, 1, 3],
    (1, 2): [],
    (2, 0): [0, 9],
    (2, 1): [7, 8, 3],
}
BITS = (32, "bf16", "fp16", 8, 4, 2)
READ_BACK = {32: lambda x: x, "bf16": bf16, "fp16": fp16, **{b: lambda x, b=b: nearest(x, b) for b in (8, 4, 2)}}
SENT_BYTES = {32: 8 * WIDTH, "bf16": 2 * WIDTH, "fp16": 2 * WIDTH, 8: 8 + 7, 4: 8 + 4, 2: 8 + 2}  # of a row
Way = tuple[int, int]  # from sender to receiver


def rows_of(direction: str, way: Way) -> np.ndarray:
    """The rows that cross: the sender's own forward, the receiver's own backward."""
    return np.array(READ.get(way if direction == FORWARD else way[::-1], []), dtype=int)


def planted(sender: int, rows: np.ndarray, step: int) -> np.ndarray:
    return (100 * sender + rows + step / 1000)[:, None] + WAVE


def links_of(rank: int, drawn: dict[Way, np.ndarray] | None = None) -> Links:
    """Of the whole graph, or with the drawn places of every (owner, reader) link only."""
    everyone = range(WORKERS)
    rows = {(q, r): np.array(READ.get((q, r), []), dtype=np.int32) for q, r in product(everyone, everyone)}
    if drawn is None:
        return Links([torch.from_numpy(rows[rank, q]) for q in everyone], [len(rows[q, rank]) for q in everyone])
    places = {link: torch.from_numpy(drawn[link].astype(np.int32)) for link in rows}
    return Links(
        [torch.from_numpy(rows[rank, q])[places[rank, q].long()] for q in everyone],
        [len(places[q, rank]) for q in everyone],
        [places[rank, q] for q in everyone],
        [places[q, rank] for q in everyone],
    )


def block_of(rank: int, direction: str, step: int, drawn: dict[Way, np.ndarray] | None = None) -> torch.Tensor:
    """What a worker posts: its inner rows, or the gradients of its halo rows by owner."""
    if direction == FORWARD:
        return torch.from_numpy(planted(rank, np.arange(INNER), step))
    rows = [np.array(READ.get((q, rank), []), dtype=int) for q in range(WORKERS)]
    picked = [r if drawn is None else r[drawn[q, rank]] for q, r in enumerate(rows)]
    return torch.from_numpy(planted(rank, np.concatenate(picked), step))


class Expected:
    """A channel literally: per way, what its receiver holds and since when, and what its sender remembers."""

    def __init__(self, stages: Stages, bits: int | str, direction: str):
        self.stages, self.read, self.direction = stages, READ_BACK[bits], direction
        self.ways = [way for way in product(range(WORKERS), repeat=2) if len(rows_of(direction, way))]
        self.memory = {way: np.zeros((len(rows_of(direction, way)), WIDTH)) for way in self.ways}
        self.held: dict[Way, np.ndarray] = {}
        self.born: dict[Way, np.ndarray] = {}
        self.mail: list[tuple[int, int, Way, np.ndarray, np.ndarray]] = []  # due, sent, way, places, rows

    def chosen(self, way: Way, step: int, fresh: dict[Way, np.ndarray], was: dict[Way, np.ndarray]) -> np.ndarray:
        new, old, select = fresh[way], was[way], self.stages.select
        match select:
            case Every():
                phase = way[0] % (select.bound + 1) if select.staggered else 0
                sends = np.full(len(new), step == 0 or step % (select.bound + 1) == phase)
            case Gap():
                mine = [w for w in self.ways if w[0] == way[0]]
                moved, size = (np.sqrt(sum((each**2).sum() for each in blocks)) for blocks in (
                    [fresh[w] - was[w] for w in mine], [was[w] for w in mine]
                ))  # fmt: skip
                sends = np.full(len(new), moved > select.bound * size)
            case Changed():
                sends = np.abs(new - old).max(1) > select.bound * np.abs(old).max(1)
            case _:
                sends = np.full(len(new), True)
        return np.nonzero(sends)[0]

    def post(self, step: int) -> dict[Way, int]:
        """Sends; says how many rows left."""
        fresh = {way: planted(way[0], rows_of(self.direction, way), step) for way in self.ways}
        was = {way: rows.copy() for way, rows in self.memory.items()}
        left = {}
        for way in self.ways:
            places = self.chosen(way, step, fresh, was)
            x, memory = fresh[way][places], self.memory[way]
            if len(places) == 0:
                sent = x
            elif isinstance(self.stages.merge, Add):
                sent = self.read(x - memory[places])
                memory[places] += sent
            elif self.stages.feedback:
                sent = self.read(x + memory[places])
                memory[places] += x - sent
            else:
                memory[places] = sent = self.read(x)
            due = step if self.stages.warm and step == 0 else step + self.stages.delay
            self.mail.append((due, step, way, places, sent))
            left[way] = len(places)
        return left

    def take(self, step: int) -> None:
        for message in [m for m in self.mail if m[0] <= step]:
            _, sent_at, way, places, rows = message
            self.mail.remove(message) if False else None
            first = way not in self.held
            if first:
                self.held[way], self.born[way] = np.zeros_like(self.memory[way]), np.full(len(self.memory[way]), sent_at)
            held, merge = self.held[way], self.stages.merge
            if isinstance(merge, Add):
                held[places] += rows
            elif isinstance(merge, Smooth) and not (first and not merge.from_zero):
                held[places] = merge.decay * held[places] + (1 - merge.decay) * rows
            else:
                held[places] = rows
            self.born[way][places] = sent_at
        self.mail = [m for m in self.mail if m[0] > step]
