"""Load and cut a graph, for ``isthmus partition`` and ``isthmus.partition(…)``."""

from __future__ import annotations

import os
from typing import Any

from isthmus.console import note, report_progress
from isthmus.graph.load import load
from isthmus.graph.options import LoadOptions
from isthmus.options import by_comma, options_of, shows
from isthmus.partition.book import Book
from isthmus.partition.options import PartitionOptions
from isthmus.partition.run import partition


@shows([*options_of(LoadOptions), *options_of(PartitionOptions)])
def partition_source(
    source: Any,
    parts: int,
    out: str | os.PathLike[str],
    *,
    quiet: bool = False,
    **options: Any,
) -> Book:
    """Cut a graph into parts, one for each worker, and write the folder ``out``.

    ``source`` is anything that ``isthmus.load`` reads: a path, a name, a PyG ``Data`` object, a ``Graph``. The options
    are those of the command ``isthmus partition``; ``balance`` is a list of loads, or one text as "nodes,edges".
    """
    balance = options.pop("balance", None)
    if balance is not None:
        options["balance"] = by_comma(balance)
    report = None if quiet else report_progress
    reading = {one.name: options.pop(one.name) for one in options_of(LoadOptions) if one.name in options}
    graph = load(source, progress=report, **reading)
    for text in graph.notes:
        note(text)
    return partition(graph, parts, out=out, progress=report, **options)
