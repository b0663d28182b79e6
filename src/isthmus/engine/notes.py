"""Notes about runs that work, but perhaps not as the user expects."""

from __future__ import annotations

from isthmus.local import LocalGraph
from isthmus.partition import Book


def ignored_weights(book: Book, graph: LocalGraph, model: str) -> str | None:
    """Return a note, after a step, that the model did not read the edges' attributes; None if it did."""
    if not book.has_edge_attr or graph.edge_attr_read:
        return None
    return (
        f"{book.name} has edge weights or attributes, and {model} does not read them: every edge counts the same; a "
        "model of your own can, by graph.edge_attr (docs/models.md)"
    )
