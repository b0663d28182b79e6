"""Which results of a pass are read afterwards, and the edges that lead to them."""

from __future__ import annotations

import time
from collections import deque

from torch import Tensor

from isthmus.comm import Links
from isthmus.local.policy import Policy
from isthmus.local.rows import FEW
from isthmus.sample import FEW_READ, Drawing, Edges, Near, Pattern, Targets

_MADE = 3  # that are kept: of the rows that are read, of those that they are made of, and of sparse features


class Reading:
    """Rows that are read, as they were declared; and edges towards these or other rows, made once if possible."""

    def __init__(self, whole: Edges, drawing: Drawing, policy: Policy):
        self.whole, self.drawing, self.policy = whole, drawing, policy
        self.declared: Near | None = None
        self._few = False  # rows that are read, of all workers together
        self._of_whole: deque[Targets] = deque(maxlen=_MADE)
        self.begin(0, False)

    def declare(self, rows: Tensor, share: float) -> Links:
        """No results but these (int64) are read when a model trains, a share of all workers' rows.

        Every worker declares at the same time. Returns all that can cross where only these are made, in the numbers
        that graphs' own links go by.
        """
        assert self.declared is None, "graphs keep what was made of the rows that were declared"
        drawn, self._few = self.policy.sampler is not None, share <= FEW_READ
        self.declared = Near(self.drawing.scene, rows, drawn, others=self.policy.weighs_all_rows)
        return self.whole.links if drawn else self.declared.links

    def begin(self, step: int, as_declared: bool) -> None:
        """A pass begins; all results are read, or those that were declared."""
        self.step, self.near = step, self.declared if as_declared else None
        self._thin: Pattern | None = None
        self._of_step: deque[Targets] = deque(maxlen=_MADE)

    @property
    def rows(self) -> Tensor | None:
        """The rows that are read, int64; None: all."""
        return None if self.near is None else self.near.rows

    def is_near(self, only: Tensor | None) -> bool:
        """Whether these are the rows that are read."""
        return only is not None and only is self.rows

    def links_at(self, step: int, near: bool) -> Links:
        """The links of a step's graph; with ``near``, of a site where only rows are made that are read."""
        edges = self.drawing.at(step)
        return self.declared.links_of(edges) if near and self.declared is not None else edges.links

    def sources(self, edges: Edges, thinned: bool) -> Tensor | None:
        """The inner rows, int64, that those which are read are made of, here or elsewhere; None: nearly all.

        By the edges of a graph, or, ``thinned``, by those that `towards` gives.
        """
        if self.near is None or self.drawing.measures:  # which is done of all rows
            return None
        drawn = self._thinned(edges) if thinned else None
        sources = self.near.sources(edges, None if drawn is None else drawn.csr)
        return sources if len(sources) <= FEW * self.whole.num_inner else None

    def parts(self, only: Tensor | None, edges: Edges) -> bool:
        """Whether it pays to part the edges towards these rows from the others: not for many rows of one step alone."""
        return only is None or self.is_near(only) or edges.inner is self.whole.inner

    def towards(self, rows: Tensor, edges: Edges, with_self: bool, all_halo: bool = False) -> Targets:
        """Edges that lead to the given rows; those of the whole graph are kept, others for this step.

        Where they are the rows that are read, without halo rows that they do not read, unless ``all_halo``.
        """
        near, drawn = self.near if self.is_near(rows) and not all_halo else None, self._thinned(edges)
        thinned = None if near is None else drawn
        made = self._of_whole if edges is self.whole else self._of_step
        for one in made:
            if one.is_of(edges, rows, with_self, near, thinned):
                return one
        shared = drawn is None and edges is not self.whole and edges.inner is self.whole.inner
        like = self.towards(rows, self.whole, with_self, all_halo) if shared else None
        made.append(Targets(edges, rows, with_self, like, near, thinned))
        return made[-1]

    def _thinned(self, edges: Edges) -> Pattern | None:
        """The inner edges to the rows that are read, as drawn for this step; None: those of its graph."""
        near, thin = self.near, self.policy.thin
        if near is None or thin is None or not self._few or edges.inner is not self.whole.inner:
            return None
        if self._thin is None:
            scene, begun = self.drawing.scene, time.perf_counter()
            self._thin = thin.draw(scene, near.inner, near.rows, self.step, self.drawing.sizes(self.step))
            scene.transport.ledger.sample_seconds += time.perf_counter() - begun
        return self._thin
