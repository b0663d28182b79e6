"""The options of reading a graph."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.errors import InputError
from isthmus.options import check_options, option

_CUTTING = "train compare plan partition Worker"
RULES = ("first", "sum", "mean", "max", "keep")


@dataclass(frozen=True)
class LoadOptions:
    """Decisions that a source leaves open: the directions of its edges, parallel edges, the meaning of y."""

    undirected: bool = option(False, "Add the missing direction of every edge.", "Cutting", _CUTTING)
    directed: bool = option(False, "Keep one-directional edges as they are.", "Cutting", _CUTTING)
    multi_edges: str = option("first", "Weights of parallel edges: {choices}.", "Cutting", _CUTTING, choices=RULES)
    """Edges without weights count one each: with ``sum`` they get weights, the number of parallel edges. With ``keep``
    each stays an edge of its own, with its attributes."""
    task: str | None = option(
        None, "{choices}, if y could be either.", "Cutting", _CUTTING, choices=("classes", "regression")
    )
    """None: regression if y has values that are no whole numbers."""

    hold_out: float = option(0.0, "Share of edges kept back to score links by.", "Cutting", _CUTTING, least=0, below=1)
    """Half for validation and half for the test, drawn by chance; no model ever sees them (--metric link-auc)."""

    def __post_init__(self) -> None:
        check_options(self)
        if self.undirected and self.directed:
            raise InputError("--undirected and --directed exclude each other: give one of them")
