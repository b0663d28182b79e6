"""PipeGCN, algorithm 1 (lines 9–14 forward, 22–29 backward) and its smoothing (sec. 3.4), with staleness τ."""

from __future__ import annotations

from oracle.links import Links
from oracle.partition_parallel import BACKWARD, FORWARD, Policy, Rows, Wire


class Pipe(Policy):
    """A pipeline in which step t uses what was sent at step t − τ (the paper's τ is 1).

    start "as-published": halo rows are 0 until then (line 6); "warm": step 0 is exact, and its rows serve until step τ.
    smooth_start "as-published": the averages begin at 0; "first": with the first rows.
    """

    def __init__(
        self,
        links: Links,
        staleness: int = 1,
        smooth_features: float = 0.0,
        smooth_gradients: float = 0.0,
        start: str = "warm",
        smooth_start: str = "first",
        wire: Wire | None = None,
    ):
        super().__init__(links, wire)
        self.staleness, self.start, self.smooth_start = staleness, start, smooth_start
        self.decay = {FORWARD: smooth_features, BACKWARD: smooth_gradients}
        self.sent: dict[tuple[int, int, int], Rows] = {}  # by way, site and step
        self.average: dict[tuple[int, int], Rows] = {}  # by way and site

    def features(self, t: int, site: int, rows: Rows) -> Rows:
        return self.late(t, site, FORWARD, rows)

    def gradients(self, t: int, site: int, rows: Rows) -> Rows:
        return self.late(t, site, BACKWARD, rows)

    def late(self, t: int, site: int, way: int, rows: Rows) -> Rows:
        self.sent[way, site, t] = self.cross(t, site, way, rows)
        of = t - self.staleness
        if self.start == "warm":
            of = max(of, 0)
        if of < 0:
            return [0 * block for block in rows]
        if (way, site, of) in self.sent:  # each message counts once
            self.average[way, site] = self.smooth(way, self.average.get((way, site)), self.sent.pop((way, site, of)))
        return self.average[way, site]

    def smooth(self, way: int, average: Rows | None, new: Rows) -> Rows:
        """Return δ̂^t = γ δ̂^{t−1} + (1 − γ) δ^t."""
        if average is None:
            average = new if self.smooth_start == "first" else [0 * block for block in new]
        decay = self.decay[way]
        return [decay * old + (1 - decay) * block for old, block in zip(average, new, strict=True)]
