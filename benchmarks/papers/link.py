"""How narrow the links must be for `vanilla` to wait for a given share of a step.

With C the computing and M the transfer of a step, nothing overlapped, the share is M / (C + M). M is the time that the
busiest link needs for its bytes, so it is inverse to the rate.
"""

from __future__ import annotations

from isthmus.testbed import bits_per_second, written
from isthmus.testbed.rate import FASTEST, SLOWEST

AIM = 0.75  # the papers' baselines wait for 66 to 81 % of a step
NEAR = 0.03  # of the aim: good enough
LOADED = 0.98  # of a link's rate is what a TCP stream gets


def transfer_for(compute: float, share: float = AIM) -> float:
    """M for which M / (C + M) is the share, in seconds: 3 C for 75 %."""
    return compute * share / (1 - share)


def rate_for(busiest: float, compute: float, share: float = AIM) -> float:
    """Bits per second at which the ``busiest`` link's bytes of a step take `transfer_for` seconds."""
    return _possible(8 * busiest / transfer_for(compute, share) / LOADED)


def corrected(rate: float, reached: float, share: float = AIM) -> float:
    """The rate after one at which vanilla waited for ``reached``: C stays, M is inverse to the rate."""
    reached = min(max(reached, 0.01), 0.99)
    return _possible(rate * transfer_for(1, reached) / transfer_for(1, share))


def near(reached: float, share: float = AIM) -> bool:
    return abs(reached - share) <= NEAR


def _possible(rate: float) -> float:
    """Within what a testbed can do, and as it will be written."""
    return bits_per_second(written(min(max(rate, SLOWEST), FASTEST)))
