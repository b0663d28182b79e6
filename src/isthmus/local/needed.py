"""The results of a pass that are needed afterwards, and the edges that lead to them."""

from __future__ import annotations

import time
from collections import deque

from torch import Tensor

from isthmus.comm import Links
from isthmus.local.policy import Policy
from isthmus.local.rows import FEW
from isthmus.sample import FEW_NEEDED, Schedule
from isthmus.shard import NeededReplicas, NeededRows, Pattern, RowSubset, Shard, VertexShard

_MADE = 3  # subsets kept: for the rows that the loss reads, for the rows they are computed from, for sparse features


class Needed:
    """The needed rows as they were declared, and edges to these or other rows, reused between steps where possible."""

    def __init__(self, whole: Shard, schedule: Schedule, policy: Policy):
        self.whole, self.schedule, self.policy = whole, schedule, policy
        self.declared: NeededRows | NeededReplicas | None = None
        self._few = False  # whether the needed rows of all workers together are few
        self._of_whole: deque[RowSubset] = deque(maxlen=_MADE)
        self.begin(0, False)

    def declare(self, rows: Tensor, share: float) -> Links:
        """Declare that a training model's results are read at these rows only (int64), a share of all workers' rows.

        Every worker declares at the same time. Returns the links of all rows that can cross where only these are
        computed, with the numbering of the graph's own links.
        """
        assert self.declared is None, "graphs keep what was made of the rows that were declared"
        drawn, self._few = self.policy.sampler is not None, share <= FEW_NEEDED
        if isinstance(self.whole, VertexShard):
            self.declared = NeededReplicas.of(self.whole, rows, self.schedule.context.transport)
            return self.declared.links if self.policy.caches else self.declared.summed.links
        self.declared = NeededRows(self.schedule.context, rows, drawn, others=self.policy.weighs_all_rows)
        return self.whole.links if drawn else self.declared.links

    def begin(self, step: int, as_declared: bool) -> None:
        """Begin a pass in which all results are read or, with ``as_declared``, only the declared ones."""
        self.step, self.current = step, self.declared if as_declared else None
        self._thin: Pattern | None = None
        self._of_step: deque[RowSubset] = deque(maxlen=_MADE)

    @property
    def rows(self) -> Tensor | None:
        """The rows that are read, int64; None: all."""
        return None if self.current is None else self.current.rows

    def is_needed(self, only: Tensor | None) -> bool:
        """Return whether ``only`` is the rows that are read."""
        return only is not None and only is self.rows

    def links(self, needed: bool) -> Links:
        """Return the links of all rows that can cross; with ``needed``, at a site that computes only needed rows."""
        return self.declared.links if needed and self.declared is not None else self.whole.links

    def links_at(self, step: int, needed: bool) -> Links:
        """Return the links of a step's graph; with ``needed``, of a site that computes only the needed rows."""
        edges = self.schedule.at(step)
        return self.declared.links_of(edges) if needed and self.declared is not None else edges.links

    def sources(self, edges: Shard, thinned: bool) -> Tensor | None:
        """Return the inner rows (int64) from which the needed rows are computed, here or elsewhere; None: nearly all.

        They follow from the edges of a graph or, ``thinned``, from those that `towards` gives.
        """
        if not isinstance(self.current, NeededRows) or self.schedule.recording:  # norms are recorded for all rows
            return None
        drawn = self._thinned(edges) if thinned else None
        sources = self.current.sources(edges, None if drawn is None else drawn.csr)
        return sources if len(sources) <= FEW * self.whole.num_inner else None

    def builds_subset(self, only: Tensor | None, edges: Shard) -> bool:
        """Return whether to build a row subset of the edges: for rows that the loss reads, or if steps can share it."""
        lasts = edges.inner is self.whole.inner and not self.whole.replicated
        return only is None or self.is_needed(only) or lasts

    def replicas(self, only: Tensor | None) -> NeededReplicas | None:
        """Return the replicas of the masters ``only``, under a vertex-cut; None: all."""
        if only is None:
            return None
        assert isinstance(self.current, NeededReplicas), "under a vertex-cut only the rows that are read are some"
        return self.current

    def towards(self, rows: Tensor, edges: Shard, with_self: bool, all_halo: bool = False) -> RowSubset:
        """Return the edges that lead to the given rows; those of the whole graph are kept, others last for this step.

        For the rows that the loss reads, halo rows that they do not read are left out, unless ``all_halo``.
        """
        needed, drawn = self.current if self.is_needed(rows) and not all_halo else None, self._thinned(edges)
        assert not isinstance(needed, NeededReplicas), "vertex-cuts have replicas in place of row subsets"
        thinned = None if needed is None else drawn
        made = self._of_whole if edges is self.whole else self._of_step
        for one in made:
            if one.is_of(edges, rows, with_self, needed, thinned):
                return one
        shared = drawn is None and edges is not self.whole and edges.inner is self.whole.inner
        like = self.towards(rows, self.whole, with_self, all_halo) if shared else None
        made.append(RowSubset(edges, rows, with_self, like, needed, thinned))
        return made[-1]

    def _thinned(self, edges: Shard) -> Pattern | None:
        """Return the inner edges to the needed rows as drawn for this step; None: those of its graph."""
        needed, rule = self.current, self.policy.last_layer
        if edges.weighted:  # the rule knows nothing of them
            return None
        if not isinstance(needed, NeededRows) or rule is None or not self._few or edges.inner is not self.whole.inner:
            return None
        if self._thin is None:
            context, begun = self.schedule.context, time.perf_counter()
            self._thin = rule.draw(context, needed.inner, needed.rows, self.step, self.schedule.row_norms(self.step))
            context.transport.ledger.sample_seconds += time.perf_counter() - begun
        return self._thin
