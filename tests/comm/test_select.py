"""Selectors with a state of their own: CDFGNN's adaptive bound, literally; and checkpoints of it."""

from __future__ import annotations

import pytest
import torch
from oracle.channel import INNER, WIDTH, WORKERS, links_of

from isthmus.comm import FORWARD, SCATTER, Buffers, Changed, Channel, ChannelId, Hub, Keep, Links, Stages
from isthmus.comm.channel.select import SURE, Select
from isthmus.comm.channel.state import restore, state_of

ACCURACIES = [0.30, 0.40, 0.50, 0.50, 0.49, 0.20, 0.90, 0.90, 0.10]


def literally(bound: float, accuracies: list[float]) -> list[float]:
    """Return the bound after each accuracy, by the prose around eq. 6."""
    mean, bounds = accuracies[0], []
    for accuracy in accuracies:
        if accuracy > mean + 0.02:
            bound = min(0.3, 1.05 * bound, bound + 0.01)
        elif accuracy < mean - 0.001:
            bound = max(0.001, 0.9 * bound, bound - 0.01)
        mean = 0.8 * mean + 0.2 * accuracy
        bounds.append(bound)
    return bounds


def test_the_bound_follows_the_accuracy():
    for first in (0.01, 0.001, 0.2999, 0.25):
        selector, found = Changed(first, adapt=True).start(), []
        for accuracy in ACCURACIES:
            selector.observe({"train": accuracy})
            found.append(selector.bound)
        assert found == literally(first, ACCURACIES)
    assert len(set(found)) > 3


def test_every_channel_has_a_selector_of_its_own():
    rule = Changed(0.01, adapt=True)
    one, other = rule.start(), rule.start()
    one.observe({"train": 0.1})
    one.observe({"train": 0.9})
    assert one.bound > 0.01 == other.bound
    assert Changed(0.01).start() == Changed(0.01)


def test_what_a_selector_has_learnt_is_part_of_a_checkpoint():
    """Rows move by 3 %: they are sent at a bound of 1 %, and no more once the bound has grown past that."""

    def channel(transport):
        stages = Stages(Changed(0.0299, adapt=True), merge=Keep())
        return Channel(transport, stages, links_of(transport.rank), ChannelId(0, FORWARD, SCATTER), 0, Buffers())

    def sent(one, step, links):
        one.transport.ledger.take()
        one.post(step, torch.full((INNER, WIDTH), 1.03**step, dtype=torch.float64), links, "embeddings")
        one.take(step)
        return one.transport.ledger.take().kinds["embeddings"]

    def work(transport):
        links, one = links_of(transport.rank), channel(transport)
        before = [sent(one, step, links) for step in range(2)]
        for accuracy in (0.1, 0.9):
            one.sender.select.observe({"train": accuracy})
        other = channel(transport)
        restore(other, state_of(one), lambda step: links)
        return before, sent(one, 2, links), sent(other, 2, links)

    for (first, second), after, resumed in Hub(WORKERS).run(work):
        assert first == second > 0 == after == resumed


def test_rows_that_have_become_nan_leave():
    """Readers that kept the old ones would not see that training has diverged."""
    old, new = torch.ones(3, 2), torch.ones(3, 2)
    new[1, 0] = torch.nan
    (picks,) = Changed(0.5).by_value([new], [old])
    assert picks.tolist() == [1]


def test_a_choice_by_value_that_is_never_asked_for():
    with pytest.raises(TypeError, match="set compares = True"):

        class Forgetful(Select):
            def by_value(self, rows, held):
                return [None] * len(rows)


def test_drawn_changes_are_right_on_average():
    """Rows move by half of the bound: a fifth of them leaves, and counts five times at that step, once in the store."""
    rows, chance = 6000, 0.4
    stages = Stages(Changed(0.01, chance=chance), merge=Keep())

    def work(transport):
        other, all_rows = 1 - transport.rank, torch.arange(rows, dtype=torch.int32)
        links = Links([all_rows if q == other else all_rows[:0] for q in range(2)], [0, rows] if other else [rows, 0])
        channel = Channel(transport, stages, links, ChannelId(0, FORWARD, SCATTER), 0, Buffers())
        for step, value in enumerate((1.0, 1.005)):
            channel.post(step, torch.full((rows, 1), value, dtype=torch.float64), links, "embeddings")
            used = channel.take(step).clone()
        return used, channel.reader.store

    used, held = Hub(2).run(work)[0]
    came = held == 1.005
    assert abs(came.double().mean() - chance / 2) < 0.02
    assert torch.equal(used[~came], torch.ones(rows - int(came.sum()), dtype=torch.float64))
    torch.testing.assert_close(used[came] - 1, torch.full_like(used[came], 0.005 * 255 / 51))
    assert abs(float(used.mean()) - 1.005) < 0.0005


def test_rows_without_a_number_leave():
    new, old = torch.tensor([[1.0], [float("nan")], [2.0], [0.0]]), torch.tensor([[1.0], [1.0], [0.0], [0.0]])
    (levels,) = Changed(0.1, chance=0.5).levels([new], [old])
    assert levels.tolist() == [0, SURE, 128, 0]
