"""``isthmus partition`` and ``isthmus.partition(…)``: from any source to a parts folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from isthmus.console import note, report_progress
from isthmus.graph.load import load
from isthmus.partition.book import Book
from isthmus.partition.run import partition


def partition_source(
    source: Any,
    parts: int,
    out: str | os.PathLike[str],
    *,
    method: str = "metis",
    objective: str | None = None,
    balance: str | Sequence[str] | None = None,
    order: str | None = None,
    block_nodes: int = 4000,
    overwrite: bool = False,
    undirected: bool = False,
    directed: bool = False,
    seed: int = 0,
    quiet: bool = False,
) -> Book:
    """Cut a graph into parts, one for each worker, and write the folder ``out``.

    ``source`` is whatever ``isthmus.load`` reads: a path, a name, a PyG ``Data`` object, a ``Graph``. The options are
    those of the command ``isthmus partition``; ``balance`` is what METIS balances, "nodes,edges" or a list.
    """
    if isinstance(balance, str):
        balance = balance.split(",")
    report = None if quiet else report_progress
    graph = load(source, undirected=undirected, directed=directed, progress=report)
    for text in graph.notes:
        note(text)
    return partition(
        graph,
        parts,
        method,
        out=out,
        seed=seed,
        objective=objective,
        balance=None if balance is None else tuple(balance),
        order=order,
        block_nodes=block_nodes,
        overwrite=overwrite,
        progress=report,
    )
