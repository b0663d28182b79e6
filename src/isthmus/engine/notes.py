"""Notes about runs that work, but perhaps not as the user expects."""

from __future__ import annotations

from torch import nn

from isthmus.local import LocalGraph
from isthmus.nn import norms_of
from isthmus.partition import Book


def ignored_weights(book: Book, graph: LocalGraph, model: str) -> str | None:
    """Return a note, after a step, that the model did not read the edges' attributes; None if it did."""
    if not book.has_edge_attr or graph.edge_attr_read:
        return None
    return (
        f"{book.name} has edge weights or attributes, and {model} does not read them: every edge counts the same; a "
        "model of your own can, by graph.edge_attr (docs/models.md)"
    )


def shared_norms(model: nn.Module, workers: int) -> str | None:
    """Return a note about the norms of a model that see the rows of all workers; None if it has none."""
    norms = list(norms_of(model)) if workers > 1 else []
    if not norms:
        return None
    kinds = " and ".join(dict.fromkeys(type(norm).__name__ for _, norm in norms))
    names = ", ".join(name or "the model" for name, _ in norms[:3]) + (", …" if len(norms) > 3 else "")
    return f"{names} ({kinds}): statistics are those of the rows of all {workers} workers"
