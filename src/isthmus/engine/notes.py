"""Notes about runs that work, but perhaps not as the user expects."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from isthmus.engine.config import TrainConfig
from isthmus.local import LocalGraph
from isthmus.nn import Model, norms_of
from isthmus.nn.compiled import seconds_spent
from isthmus.partition import Book


def about_edges(book: Book, graph: LocalGraph, model: nn.Module) -> str | None:
    """Return a note, after a step, about what the edges carry: that it was used, or that the model did not read it."""
    whole, name = graph.runtime.whole, type(model).__name__
    weighs = whole.weights_read or (whole.weighted and isinstance(model, Model))
    if not book.has_edge_attr or (graph.edge_attr_read and not weighs):
        return None
    if weighs:
        return (
            f"{book.name} has edge weights: sums, means and degrees of {name} are weighted "
            "(--edge-weights none: every edge counts the same)"
        )
    return (
        f"{book.name} has edge attributes ({whole.edge_columns} column(s) of edge_attr), and {name} does not read "
        "them: every edge counts the same; a model of your own can, by edge_weight or edge_attr (docs/models.md)"
    )


def shared_norms(model: nn.Module, workers: int) -> str | None:
    """Return a note about the norms of a model that see the rows of all workers; None if it has none."""
    norms = list(norms_of(model)) if workers > 1 else []
    if not norms:
        return None
    kinds = " and ".join(dict.fromkeys(type(norm).__name__ for _, norm in norms))
    names = ", ".join(name or "the model" for name, _ in norms[:3]) + (", …" if len(norms) > 3 else "")
    return f"{names} ({kinds}): statistics are those of the rows of all {workers} workers"


def of_first_step(config: TrainConfig, book: Book, graph: LocalGraph, model: nn.Module, step: int) -> Iterator[str]:
    """Yield notes about what the first step of a process has shown; ``step``: the steps of the run so far."""
    ignored = about_edges(book, graph, model)
    if ignored and step == 1:
        yield ignored
    if graph.runtime.own_rows:
        yield graph.runtime.own_rows
    if config.compile is not None:
        yield f"compiling the model by {config.compile} took {seconds_spent():.1f} s"
