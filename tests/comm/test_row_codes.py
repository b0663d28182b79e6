"""Bits that are chosen row by row, and rows that readers predict."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from isthmus.comm import (
    FORWARD,
    SCATTER,
    AdaptiveBits,
    Buffers,
    Channel,
    ChannelId,
    Every,
    Hub,
    Keep,
    Links,
    Stages,
    Trend,
)
from isthmus.comm.channel.adaptive_bits import BITS, assign
from isthmus.errors import InputError
from isthmus.local import Policy
from isthmus.sample import Boundary

ROWS, WIDTH = 6, 5


def variance(harm, bits):
    return sum(h / (2**b - 1) ** 2 for h, b in zip(harm.tolist(), bits, strict=True))


@pytest.mark.parametrize("budget", [2.0, 3.0, 4.0, 6.0, 8.0])
def test_no_other_choice_of_so_many_bits_has_less_variance(budget):
    harm = torch.tensor([4.0, 0.01, 900.0, 0.0, 33.0], dtype=torch.float64)
    mine = [BITS[place] for place in assign(harm, budget)]
    assert sum(mine) <= budget * len(harm)
    others = [bits for bits in product(BITS, repeat=len(harm)) if sum(bits) <= sum(mine)]
    assert variance(harm, mine) <= min(variance(harm, bits) for bits in others)


def sent(stages, rows_of, steps):
    """What worker 1 holds of worker 0's rows after each step, and worker 0's ledger."""

    def work(transport):
        mine = torch.arange(ROWS, dtype=torch.int32)
        links = Links([mine[:0], mine], [0, 0]) if transport.rank == 0 else Links([mine[:0], mine[:0]], [ROWS, 0])
        channel, held = Channel(transport, stages, links, ChannelId(0, FORWARD, SCATTER), 0, Buffers()), []
        for step in range(steps):
            channel.post(step, rows_of(step), links, "embeddings")
            held.append(channel.take(step).clone())
        return held, transport.ledger

    (_, ledger), (held, _) = Hub(2).run(work)
    return held, ledger


def test_predictable_rows_are_not_sent():
    straight = torch.arange(ROWS * WIDTH, dtype=torch.float64).view(ROWS, WIDTH).sin()
    rows_of = lambda step: straight * (1 + 0.25 * step)  # noqa: E731
    held, ledger = sent(Stages(encode=Trend(2, period=3)), rows_of, 7)
    for step in (0, 3, 4, 5, 6):  # at 1 and 2 no trend is known yet
        torch.testing.assert_close(held[step], rows_of(step))
    assert sum(ledger.rows.values()) == 5 * ROWS  # as they are at 0, 3, 6; coded at 1, 2
    assert ledger.kinds["ids"] == 4 * 2 * 1  # two bits per row at the other four steps


def test_rows_that_are_no_numbers_do_not_stay_at_home():
    rows_of = lambda step: torch.full((ROWS, WIDTH), torch.nan if step == 2 else 1.0, dtype=torch.float64)  # noqa: E731
    held, _ = sent(Stages(encode=Trend(4, period=5)), rows_of, 3)
    assert held[2].isnan().all()


def test_rows_have_the_bits_that_were_told():
    rows_of = lambda step: torch.linspace(0, 1, WIDTH) * (10.0 ** torch.arange(ROWS))[:, None]  # noqa: E731
    held, ledger = sent(Stages(encode=AdaptiveBits(4, every=2, stochastic=False)), rows_of, 3)
    assert ledger.kinds["ids"] == 2 * 2 * 1  # told at steps 0 and 2
    assert ledger.kinds["embeddings"] == 3 * (6 * 8 + 2 * 5 + 4 * 2)  # 8 bits for the two largest, 2 for the others
    error = (held[-1] - rows_of(0)).abs().amax(1) / rows_of(0).amax(1)
    assert error[-1] < 0.5 / 255 * 1.01
    assert error.max() <= 0.5 / 3 * 1.01


@pytest.mark.parametrize("codec", [AdaptiveBits(), Trend()])
def test_what_cannot_be_is_refused(codec):
    for others in ({"delay": 1}, {"select": Every(1), "merge": Keep()}, {"feedback": True}):
        with pytest.raises(InputError):
            Stages(encode=codec, **others)
    with pytest.raises(InputError, match="leave sampler out"):
        Policy(forward=Stages(encode=codec), sampler=Boundary(0.5))


@pytest.mark.parametrize(("make", "word"), [
    (lambda: AdaptiveBits(9), "between 2 and 8"), (lambda: AdaptiveBits(4, 0), "at least 1"),
    (lambda: Trend(4, 0), "at least 1"),
])  # fmt: skip
def test_nonsense_is_refused(make, word):
    with pytest.raises(InputError, match=word):
        make()
