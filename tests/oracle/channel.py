"""The channel, literally: select → encode → ship → (wait) → decode → merge, way by way, row by row; and links by hand.

Rows are planted so that each is recognisable: 100 · sender + row + step / 1000, plus a little wave over the features.
"""

from __future__ import annotations

import numpy as np
import torch
from oracle.coded import bf16, fp16, nearest

from isthmus.comm import BACKWARD, FORWARD, GATHER, SCATTER, Add, Changed, Every, Gap, Links, Smooth, Stages

WORKERS, INNER, WIDTH = 3, 10, 7
WAVE = 0.3 * np.sin(1 + np.arange(WIDTH))
READ = {  # of (owner, reader): which of the owner's ten rows; one link is empty
    link: np.array(rows, dtype=np.int32)
    for link, rows in {
        (0, 1): [0, 2, 3, 9],
        (0, 2): [1, 2],
        (1, 0): [4, 5, 6, 7, 8, 9, 0, 1, 3],
        (1, 2): [],
        (2, 0): [0, 9],
        (2, 1): [7, 8, 3],
        **{(worker, worker): [] for worker in range(WORKERS)},
    }.items()
}
READ_BACK = {32: lambda x: x, "bf16": bf16, "fp16": fp16, **{b: lambda x, b=b: nearest(x, b) for b in (8, 4, 2)}}
BYTES = {32: 8 * WIDTH, "bf16": 2 * WIDTH, "fp16": 2 * WIDTH, 8: 8 + 7, 4: 8 + 4, 2: 8 + 2}
Way = tuple[int, int]  # from sender to receiver: a link in a scatter, a link turned round in a gather
ROUTES = [(FORWARD, SCATTER), (BACKWARD, GATHER), (FORWARD, GATHER), (BACKWARD, SCATTER)]  # the first two: an edge-cut


def planted(sender: int, rows: np.ndarray, step: int) -> np.ndarray:
    return (100 * sender + rows + step / 1000)[:, None] + WAVE


def drawn_at(step: int) -> dict[Way, np.ndarray]:
    """Return some of the positions of every link, different ones at each step."""
    draw = np.random.default_rng(step)
    return {link: np.nonzero(draw.random(len(rows)) < 0.6)[0] for link, rows in READ.items()}


def links_of(rank: int, places: dict[Way, np.ndarray] | None = None) -> Links:
    """Return the links of one worker, whole or with the drawn positions only."""
    out, back = ([(rank, q) for q in range(WORKERS)], [(q, rank) for q in range(WORKERS)])
    if places is None:
        return Links([torch.from_numpy(READ[link]) for link in out], [len(READ[link]) for link in back])
    sent, read = ([torch.from_numpy(places[link].astype(np.int32)) for link in links] for links in (out, back))
    rows = [torch.from_numpy(READ[link][places[link]]) for link in out]
    return Links(rows, [len(chosen) for chosen in read], sent, read)


def block_of(rank: int, leg: str, step: int, places: dict[Way, np.ndarray] | None = None) -> torch.Tensor:
    """Return what a worker posts: its own rows, or those of its mirrors by owner."""
    rows = [READ[q, rank] if places is None else READ[q, rank][places[q, rank]] for q in range(WORKERS)]
    rows = np.arange(INNER) if leg == SCATTER else np.concatenate(rows)
    return torch.from_numpy(planted(rank, rows, step))


class Expected:
    """A channel, literally. For every way: the rows that its receiver keeps and their steps, the sender's memory, the
    mail."""

    def __init__(self, stages: Stages, bits: int | str, route: tuple[str, str], drawn: bool = False):
        self.stages, self.read, self.drawn = stages, READ_BACK[bits], drawn
        self.pass_, self.leg = route
        self.rows = {(link if self.leg == SCATTER else link[::-1]): rows for link, rows in READ.items()}
        self.memory = {way: np.zeros((len(rows), WIDTH)) for way, rows in self.rows.items()}
        self.store: dict[Way, np.ndarray] = {}
        self.born: dict[Way, np.ndarray] = {}
        self.layout: dict[Way, np.ndarray] = {}  # which of the kept rows are read
        self.mail: list[tuple[int, int, Way, np.ndarray, np.ndarray, np.ndarray]] = []
        self.left: dict[Way, int] = {}  # rows that left at the last step
        self.told: dict[Way, int] = {}  # bytes that said which rows left, if not all

    def places(self, way: Way, step: int, due: int) -> np.ndarray:
        """Return the positions of the rows in the graph that a message is for."""
        if not self.drawn:
            return np.arange(len(self.rows[way]))
        of = drawn_at(due if self.pass_ == FORWARD else step)
        return of[way] if self.leg == SCATTER else of[way[::-1]]

    def post(self, step: int) -> None:
        delay, self.left, self.told = self.stages.delay, dict.fromkeys(self.rows, 0), dict.fromkeys(self.rows, 0)
        first = step if step == 0 and self.stages.warm else step + delay
        for due in range(first, step + delay + 1) if self.drawn and self.pass_ == FORWARD else [first]:
            fresh = {way: planted(way[0], rows, step) for way, rows in self.rows.items()}
            places = {way: self.places(way, step, due) for way in self.rows}
            picks = {way: self.chosen(way, step, fresh, places) for way in self.rows}
            for way, picked in picks.items():
                sent = self.send(way, picked, fresh[way][picked])
                self.mail.append((due, step, way, places[way], picked, sent))
                self.left[way] += len(picked)
                self.told[way] += -(-len(places[way]) // 8) if self.stages.select.compares else 0

    def chosen(self, way: Way, step: int, fresh: dict[Way, np.ndarray], places: dict[Way, np.ndarray]) -> np.ndarray:
        select, everything, old = self.stages.select, places[way], self.memory
        match select:
            case Every():
                phase = way[0] % (select.bound + 1) if select.staggered else 0
                return everything if step == 0 or step % (select.bound + 1) == phase else everything[:0]
            case Gap():
                mine = [each for each in self.rows if each[0] == way[0]]
                moved = np.linalg.norm(np.concatenate([(fresh[each] - old[each])[places[each]] for each in mine]))
                size = np.linalg.norm(np.concatenate([old[each][places[each]] for each in mine]))
                return everything if moved > select.bound * size else everything[:0]
            case Changed():
                moved = np.abs(fresh[way] - old[way]).max(1) > select.bound * np.abs(old[way]).max(1)
                return everything[moved[everything]]
        return everything

    def send(self, way: Way, picked: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Send rows; return what is read back of them."""
        memory = self.memory[way]
        if not len(picked):
            return rows
        if isinstance(self.stages.merge, Add):
            sent = self.read(rows - memory[picked])
            memory[picked] += sent
        elif self.stages.feedback:
            total = rows + memory[picked]
            sent = self.read(total)
            memory[picked] = total - sent
        else:
            memory[picked] = sent = self.read(rows)
        return sent

    def take(self, step: int) -> None:
        due, self.mail = [m for m in self.mail if m[0] <= step], [m for m in self.mail if m[0] > step]
        for _, sent, way, places, picked, rows in due:
            merge, fresh = self.stages.merge, way not in self.store
            store = self.store.setdefault(way, np.zeros((len(self.rows[way]), WIDTH)))
            self.born.setdefault(way, np.full(len(store), sent))[picked] = sent
            self.layout[way] = places
            match merge:
                case Add():
                    store[picked] += rows
                case Smooth() if not fresh or merge.from_zero:
                    store[picked] = merge.decay * store[picked] + (1 - merge.decay) * rows
                case _:
                    store[picked] = rows

    def held(self, receiver: int) -> list[np.ndarray]:
        """Return the rows that are read, one block per sender; none before the first message."""
        ways = [(q, receiver) for q in range(WORKERS) if (q, receiver) in self.store]
        return [self.store[way][self.layout[way]] for way in ways]

    def ages(self, receiver: int, step: int) -> np.ndarray:
        return step - np.concatenate([self.born[q, receiver][self.layout[q, receiver]] for q in range(WORKERS)])
