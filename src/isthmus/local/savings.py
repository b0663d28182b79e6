"""The exact savings: less work and less traffic for the same numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Savings:
    """The exact savings that a recipe takes. All on is `exact`; all off is `vanilla`, as the papers' baselines run."""

    narrow_side: bool = True
    """P(HW) = (PH)W: a layer that narrows its rows exchanges and aggregates them after its transform."""
    aggregate_once: bool = True
    """Input rows never change: results computed from them alone (P X, their halo copies) are computed once per run."""
    overlap: bool = True
    """Inner rows are aggregated while halo rows are on the wire."""
    read_rows: bool = True
    """The last layer computes only the rows that the loss reads, those of training nodes: only rows next to these
    cross, and the layer before computes only those."""
    cover: bool = True
    """Where rows are fresh, an edge between two workers is summed at whichever end keeps the number of rows that cross
    smallest: a minimum vertex cover of the cut edges."""
    relay: bool = True
    """Between two hosts a row crosses once: one of its readers passes it on there, and sums of one host's workers are
    added before they leave it."""
