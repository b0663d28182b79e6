"""The exact savings: less work and less traffic, the same numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Savings:
    """Which exact savings a recipe takes. All on is `exact`; all off is `vanilla`, as the papers' baselines run."""

    narrow_side: bool = True
    """P(HW) = (PH)W: a layer that narrows exchanges and aggregates after its transform."""
    aggregate_once: bool = True
    """Input rows never change: what is made of them alone (P X, their halo copies) is made once per run."""
    overlap: bool = True
    """Inner rows are aggregated while halo rows are on the wire."""
    read_rows: bool = True
    """The last layer makes the rows that the loss reads, those of training nodes, and no others; for it, only rows next
    to these cross, and the layer before makes only those that are read."""
