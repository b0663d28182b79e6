"""How narrow the links must be for `vanilla` to wait for a given share of a step.

With C the computing and M the transfer of a step, nothing overlapped, the share is M / (C + M). M is the time that the
busiest link needs for its bytes, so it is inverse to the rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from isthmus.testbed import bits_per_second, written
from isthmus.testbed.rate import FASTEST, SLOWEST

AIM = 0.75  # the papers' baselines wait for 66 to 81 % of a step
LOADED = 0.98  # of a link's rate is what a TCP stream gets


class Tried(NamedTuple):
    rate: float  # bits per second
    step: float  # seconds
    waiting: float  # share of it


def transfer_for(compute: float, share: float = AIM) -> float:
    """M for which M / (C + M) is the share, in seconds: 3 C for 75 %."""
    return compute * share / (1 - share)


def rate_for(busiest: float, compute: float, share: float = AIM) -> float:
    """Bits per second at which the ``busiest`` link's bytes of a step take `transfer_for` seconds."""
    return _possible(8 * busiest / transfer_for(compute, share) / LOADED)


def fitted(tried: Sequence[Tried], share: float = AIM) -> float:
    """The rate for the share, after links that were tried: C, and M times the rate, are the medians of what was seen.

    Of twelve steps on a busy machine neither is worth much; links that hung on one of them would differ by a quarter
    between two runs, and all ratios with them.
    """
    compute = median(seen.step * (1 - seen.waiting) for seen in tried)
    bits = median(seen.rate * seen.step * seen.waiting for seen in tried)
    return _possible(bits / transfer_for(compute, share))


def _possible(rate: float) -> float:
    """Within what a testbed can do, and as it will be written."""
    return bits_per_second(written(min(max(rate, SLOWEST), FASTEST)))
