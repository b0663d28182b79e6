"""Passes and legs: in which half of a step rows travel, and which way they flow."""

from __future__ import annotations

from typing import NamedTuple

FORWARD, BACKWARD = "forward", "backward"
"""The passes of autograd: rows travel in the first, their gradients in the second."""

SCATTER, GATHER = "scatter", "gather"
"""The legs. Scatter: owners send rows to their mirrors. Gather: mirrors send rows to the owner, who sums them."""

_EDGE_CUT = {FORWARD: SCATTER, BACKWARD: GATHER}  # the legs of an edge-cut, where mirrors are only read


class ChannelId(NamedTuple):
    """The (site, pass, leg) that a channel belongs to."""

    site: int
    pass_: str
    leg: str

    @property
    def number(self) -> int:
        """A number that tells the four (pass, leg) of a site apart, for keyed draws."""
        return int(self.pass_ == FORWARD) + 2 * self.way

    @property
    def way(self) -> int:
        """A number that tells the forward legs of a site apart; a backward leg has that of the one it transposes."""
        return int(_EDGE_CUT[self.pass_] != self.leg)

    @property
    def label(self) -> str:
        """The pass, and the leg where it is not the only one that an edge-cut has; as ledgers and records name it."""
        return self.pass_ if _EDGE_CUT[self.pass_] == self.leg else f"{self.pass_} {self.leg}"
