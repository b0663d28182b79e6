"""The channel, stage by stage and in combination, against what its stages say, on links made by hand.

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
    Every,
    Gap,
    Hub,
    Keep,
    Links,
    Replace,
    Smooth,
    Stages,
    codec,
)
from isthmus.comm.state import restore, state_of
from isthmus.errors import InputError

WORKERS, INNER, WIDTH, STEPS = 3, 10, 7, 8
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
BITS = (32, "bf16", "fp16", 8, 4, 2)
READ_BACK = {32: lambda x: x, "bf16": bf16, "fp16": fp16, **{b: lambda x, b=b: nearest(x, b) for b in (8, 4, 2)}}
ROW_BYTES = {32: 8 * WIDTH, "bf16": 2 * WIDTH, "fp16": 2 * WIDTH, 8: 8 + 7, 4: 8 + 4, 2: 8 + 2}
Way = tuple[int, int]  # from sender to receiver: a link forward, a link turned round backward


def planted(sender: int, rows: np.ndarray, step: int) -> np.ndarray:
    return (100 * sender + rows + step / 1000)[:, None] + WAVE


def drawn_at(step: int) -> dict[Way, np.ndarray]:
    """Some of the places of every link, others at each step."""
    draw = np.random.default_rng(step)
    return {link: np.nonzero(draw.random(len(rows)) < 0.6)[0] for link, rows in READ.items()}


def links_of(rank: int, places: dict[Way, np.ndarray] | None = None) -> Links:
    """The links of one worker, whole or with the drawn places only."""
    out, back = ([(rank, q) for q in range(WORKERS)], [(q, rank) for q in range(WORKERS)])
    if places is None:
        return Links([torch.from_numpy(READ[link]) for link in out], [len(READ[link]) for link in back])
    sent, read = ([torch.from_numpy(places[link].astype(np.int32)) for link in links] for links in (out, back))
    rows = [torch.from_numpy(READ[link][places[link]]) for link in out]
    return Links(rows, [len(chosen) for chosen in read], sent, read)


def block_of(rank: int, direction: str, step: int, places: dict[Way, np.ndarray] | None = None) -> torch.Tensor:
    """What a worker posts: its inner rows, or the gradients of its halo rows by owner."""
    rows = [READ[q, rank] if places is None else READ[q, rank][places[q, rank]] for q in range(WORKERS)]
    rows = np.arange(INNER) if direction == FORWARD else np.concatenate(rows)
    return torch.from_numpy(planted(rank, rows, step))


class Expected:
    """A channel, literally: per way what its receiver holds, and since when; what its sender remembers; the mail."""

    def __init__(self, stages: Stages, bits: int | str, direction: str, drawn: bool = False):
        self.stages, self.read, self.direction, self.drawn = stages, READ_BACK[bits], direction, drawn
        self.rows = {(link if direction == FORWARD else link[::-1]): rows for link, rows in READ.items()}
        self.memory = {way: np.zeros((len(rows), WIDTH)) for way, rows in self.rows.items()}
        self.held: dict[Way, np.ndarray] = {}
        self.born: dict[Way, np.ndarray] = {}
        self.mail: list[tuple[int, int, Way, np.ndarray, np.ndarray]] = []  # due, sent, way, places, rows
        self.left: dict[Way, int] = {}  # rows that left at the last step

    def post(self, step: int) -> None:
        delay, self.left = self.stages.delay, dict.fromkeys(self.rows, 0)
        first = step if step == 0 and self.stages.warm else step + delay
        for due in range(first, step + delay + 1) if self.drawn and self.direction == FORWARD else [first]:
            fresh = {way: planted(way[0], rows, step) for way, rows in self.rows.items()}
            picks = {way: self.chosen(way, step, due, fresh) for way in self.rows}
            for way, places in picks.items():
                self.mail.append((due, step, way, places, self.send(way, places, fresh[way][places])))
                self.left[way] += len(places)

    def chosen(self, way: Way, step: int, due: int, fresh: dict[Way, np.ndarray]) -> np.ndarray:
        if self.drawn:
            return drawn_at(due)[way] if self.direction == FORWARD else drawn_at(step)[way[::-1]]
        select, everything = self.stages.select, np.arange(len(self.rows[way]))
        match select:
            case Every():
                phase = way[0] % (select.bound + 1) if select.staggered else 0
                return everything if step == 0 or step % (select.bound + 1) == phase else everything[:0]
            case Gap():
                mine = [each for each in self.rows if each[0] == way[0]]
                moved = np.linalg.norm(np.concatenate([fresh[each] - self.memory[each] for each in mine]))
                size = np.linalg.norm(np.concatenate([self.memory[each] for each in mine]))
                return everything if moved > select.bound * size else everything[:0]
            case Changed():
                old = self.memory[way]
                return everything[np.abs(fresh[way] - old).max(1) > select.bound * np.abs(old).max(1)]
        return everything

    def send(self, way: Way, places: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """What is read back of it."""
        memory = self.memory[way]
        if not len(places):
            return rows
        if isinstance(self.stages.merge, Add):
            sent = self.read(rows - memory[places])
            memory[places] += sent
        elif self.stages.feedback:
            total = rows + memory[places]
            sent = self.read(total)
            memory[places] = total - sent
        else:
            memory[places] = sent = self.read(rows)
        return sent

    def take(self, step: int) -> None:
        due, self.mail = [m for m in self.mail if m[0] <= step], [m for m in self.mail if m[0] > step]
        for _, sent, way, places, rows in due:
            merge, fresh = self.stages.merge, way not in self.held
            if isinstance(merge, Replace):
                self.held[way], self.born[way] = rows, np.full(len(rows), sent)
                continue
            held = self.held.setdefault(way, np.zeros((len(self.rows[way]), WIDTH)))
            self.born.setdefault(way, np.full(len(held), sent))[places] = sent
            match merge:
                case Add():
                    held[places] += rows
                case Smooth() if not fresh or merge.from_zero:
                    held[places] = merge.decay * held[places] + (1 - merge.decay) * rows
                case _:
                    held[places] = rows


def watched(transport):
    """Fails if memory that is being sent is written to before the transfer was waited for."""
    plain = transport._exchange

    def exchange(send, recv, where):
        pending, copies = plain(send, recv, where), [tensor.clone() for tensor in send]
        wait = pending._wait

        def check():
            assert all(torch.equal(*pair) for pair in zip(send, copies, strict=True)), "written while under way"
            wait()

        pending._wait = check
        return pending

    transport._exchange = exchange
    return transport


def run(setups: list[tuple[Stages, str]], steps=range(STEPS), states=None, drawn=False):
    """Channels of these stages and directions side by side, with shared buffers, on every worker.

    Per worker: [step][channel] → (what it holds, one piece per sender, or None; ledgers of posting and of taking); states.
    """

    def work(transport):
        rank, buffers, found, ledger = watched(transport).rank, Buffers(), [], transport.ledger

        def links(step):
            return links_of(rank, drawn_at(step) if drawn else None)

        channels = [Channel(transport, *each, site, way, 5, buffers) for site, (*each, way) in enumerate(
            (stages, links_of(rank), direction) for stages, direction in setups
        )]  # fmt: skip
        for channel in channels if states else []:
            restore(channel, states[rank][channel.site], links)
        for step in steps:
            posting, taken, taking = [], [], []
            for channel in channels:
                block = block_of(rank, channel.direction, step, drawn_at(step) if drawn else None)
                if channel.direction == BACKWARD:
                    block = channel.outbox(*block.shape, block.dtype).copy_(block)
                for due in channel.dues(step) if drawn and channel.direction == FORWARD else [None]:
                    channel.post(step, block, links(step if due is None else due), "embeddings", due)
                posting.append(ledger.take())
            for channel in channels:
                taken.append(channel.take(step))
                taking.append(ledger.take())
            pieces = [
                None if rows is None else [p.clone() for p in c.reader.layout.arriving(c.direction).split(rows)]
                for c, rows in zip(channels, taken, strict=True)
            ]
            found.append(list(zip(pieces, posting, taking, strict=True)))
        return found, [{name: tensor.clone() for name, tensor in state_of(c).items()} for c in channels]

    return Hub(WORKERS).run(work)


def check(setups: list[tuple[Stages, str]], bits: list[int | str], drawn: bool = False) -> None:
    """What is held, its ages and its bytes, on every worker at every step, are as expected."""
    results = run(setups, drawn=drawn)
    for site, (stages, direction) in enumerate(setups):
        expected = Expected(stages, bits[site], direction, drawn)
        for step in range(STEPS):
            expected.post(step)
            expected.take(step)
            for rank, (found, _) in enumerate(results):
                about = f"{stages}, {direction}, step {step}, worker {rank}"
                pieces, posting, taking = found[step][site]
                everyone = range(WORKERS)
                assert posting.kinds["embeddings"] == ROW_BYTES[bits[site]] * sum(
                    expected.left[rank, q] for q in everyone
                ), about
                flags = sum(-(-len(expected.rows[rank, q]) // 8) for q in everyone)
                assert posting.kinds["ids"] == flags * stages.select.compares, about
                if not expected.held:
                    assert pieces is None, about
                    continue
                for q, piece in enumerate(pieces):
                    np.testing.assert_allclose(piece, expected.held[q, rank], rtol=0, atol=1e-11, err_msg=about)
                ages = step - np.concatenate([expected.born[q, rank] for q in everyone])
                assert taking.rows_used == len(ages), about
                assert taking.age_max == max(ages, default=0), about
                assert taking.age_sum == pytest.approx(ages.sum(), abs=1e-4), about


def starts(delay: int) -> tuple[bool, ...]:
    return (True, False) if delay else (True,)


SELECTS = (All(), Every(1), Every(2, staggered=True), Gap(1e-5), Changed(1e-5))
MERGES = (Replace(), Keep(), Add(), Smooth(0.8), Smooth(0.6, from_zero=True))


@pytest.mark.parametrize("merge", MERGES, ids=str)
@pytest.mark.parametrize("select", SELECTS, ids=str)
def test_stages_together(select, merge):
    if not isinstance(select, All) and isinstance(merge, Replace | Smooth):
        with pytest.raises(InputError, match="must keep the old ones"):
            Stages(select, merge=merge, delay=1)
        return
    setups, bits = [], []
    for each, delay, direction in product(BITS, range(4), (FORWARD, BACKWARD)):
        if (isinstance(merge, Add) and each == 32) or (isinstance(merge, Smooth) and not delay):
            continue
        for warm, feedback in product(starts(delay), (False, True)):
            if feedback and (each == 32 or not isinstance(select, All) or isinstance(merge, Add)):
                continue
            setups.append((Stages(select, codec(each), feedback, delay, warm, merge), direction))
            bits.append(each)
    check(setups, bits)


def test_drawn_links():
    setups, bits = [], []
    for each, delay, direction, merge in product((32, 8), range(4), (FORWARD, BACKWARD), (Replace(), Keep())):
        for warm in starts(delay):
            setups.append((Stages(All(), codec(each), each == 8, delay, warm, merge), direction))
            bits.append(each)
    check(setups, bits, drawn=True)
