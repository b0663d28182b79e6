"""Notes for a person whose run goes well, but not as they may think."""

from __future__ import annotations

from isthmus.local import LocalGraph
from isthmus.partition import Book


def ignored_weights(book: Book, graph: LocalGraph, model: str) -> str | None:
    """Say in one line, after a step, that the edges have attributes which the model has not read; None if it has."""
    if not book.has_edge_attr or graph.edge_attr_read:
        return None
    return (
        f"{book.name} has edge weights or attributes, and {model} does not read them: every edge counts the same; a "
        "model of your own can, by graph.edge_attr (docs/models.md)"
    )
