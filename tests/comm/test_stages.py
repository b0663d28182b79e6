"""Stages on numbers made by hand; combinations that make no sense are refused with the reason."""

from __future__ import annotations

import pytest
import torch

from isthmus.comm import Add, AsIs, Changed, Clip, Every, Gap, Keep, Smooth, Stages, codec
from isthmus.errors import InputError
from isthmus.local import Policy


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Stages(delay=-1), "at least 0"),
        (lambda: Stages(warm=False), "there at the first step"),
        (lambda: Stages(Every(1)), "keep the old ones"),
        (lambda: Stages(merge=Smooth()), "fresh rows need no smoothing"),
        (lambda: Stages(merge=Add()), "as long as the row itself"),
        (lambda: Stages(feedback=True), "no error to feed back"),
        (lambda: Stages(Every(1), codec(8), feedback=True, merge=Keep()), "feedback would grow old"),
        (lambda: Stages(ring=True, delay=1), "round a ring"),
        (lambda: Stages(ring=True, clip=Clip(1.0)), "round a ring"),
        (lambda: Stages(ring=True, encode=codec(8), feedback=True), "round a ring"),
        (lambda: Stages(Changed(), ring=True, merge=Keep()), "round a ring"),
        (lambda: Every(-1), "bound counts steps"),
        (lambda: Gap(-0.1), "at least 0"),
        (lambda: Changed(-0.1), "at least 0"),
        (lambda: Smooth(1.0), "below 1"),
        (lambda: Clip(0.0), "above 0"),
        (lambda: codec(3), "bits must be"),
        (lambda: codec(8, "up"), "unknown rounding"),
    ],
)
def test_nonsense_is_refused(make, why):
    with pytest.raises(InputError, match=why):
        make()


def picks(select, new, old):
    """Return which rows are sent, for two peers with rows of two features each."""
    blocks = [torch.tensor([[0.0, value] for value in values]) for values in (*new, *old)]
    chosen = select.by_value(blocks[:2], blocks[2:])
    return [list(range(len(block))) if c is None else c.tolist() for c, block in zip(chosen, blocks, strict=False)]


def test_rows_that_changed_by_more_than_bound_of_the_old_ones():
    new, old = ([1.0, 2.0, 0.0], [3.0]), ([2.0, -2.0, 0.0], [2.0])
    assert picks(Changed(0.6), new, old) == [[1], []]
    assert picks(Changed(0.4), new, old) == [[0, 1], [0]]
    assert picks(Changed(0.0), new, old) == [[0, 1], [0]]


def test_a_worker_sends_all_or_nothing_by_the_gap():
    """The rows moved by √(3² + 4²) = 5 in all, from √(6² + 8²) = 10."""
    new, old = ([3.0], [4.0]), ([6.0], [8.0])
    assert picks(Gap(0.49), new, old) == [[0], [0]]
    assert picks(Gap(0.51), new, old) == [[], []]
    assert picks(Gap(0.0), old, old) == [[], []]


def test_the_first_rows_are_always_sent():
    assert picks(Gap(0.5), ([0.1], [0.0]), ([0.0], [0.0])) == [[0], [0]]


class Mute(AsIs):
    """A codec that makes no use of what was left out before."""

    as_is = False


@pytest.mark.parametrize("how", [{"merge": Add()}, {"feedback": True}])
def test_codecs_that_heed_no_memory_send_rows_only(how):
    with pytest.raises(InputError, match="Mute heeds no memory"):
        Stages(encode=Mute(), **how)


def test_a_ring_in_one_pass_only():
    with pytest.raises(InputError, match="in both passes, or in none"):
        Policy(forward=Stages(delay=1), backward=Stages(ring=True))
