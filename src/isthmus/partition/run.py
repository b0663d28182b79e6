"""Partition a graph from start to end: assign, order, write."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.errors import InputError
from isthmus.files.atomic import check_target
from isthmus.graph.graph import Graph
from isthmus.options import options_of, shows
from isthmus.partition.adjacency import induced_csr
from isthmus.partition.book import Book, is_parts_folder
from isthmus.partition.border import Layout, Relabelling
from isthmus.partition.methods import CutOptions, assign, find
from isthmus.partition.options import PartitionOptions
from isthmus.partition.order import check_order, locality_order
from isthmus.partition.parts import write_parts

Progress = Callable[[str, int, int], None]
METIS_EDGES = 200_000_000  # per part: above, the order would need 20 GiB in METIS


@shows(options_of(PartitionOptions))
def partition(
    graph: Graph,
    parts: int,
    method: str = "metis",
    *,
    out: str | os.PathLike[str],
    progress: Progress | None = None,
    **options: Any,
) -> Book:
    """Cut ``graph`` into ``parts`` by ``method``, order the nodes of each part for locality, write the folder ``out``.

    The options are those of `PartitionOptions`; those that the method does not use are refused.
    ``progress(stage, done, total)`` is called during the work.
    """
    asked = PartitionOptions(method, **options)
    if asked.cut not in ("edge", "cover"):
        raise InputError(f"unknown cut '{asked.cut}': choose one of edge, cover")
    heeded = find(method).takes
    given = {name: getattr(asked, name) for name in ("balance", "objective", "tolerance", "passes")}
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if name not in heeded:
            raise InputError(f"{method} does not use {name}: leave it out (it takes: {', '.join(heeded) or 'nothing'})")
    cut = CutOptions(seed=asked.seed, **given)
    order = asked.order or ("ldg" if method == "ldg" or graph.num_edges > METIS_EDGES * parts else "metis")
    check_order(order, asked.block_nodes)
    check_target(
        Path(out), replace=asked.overwrite, ours=is_parts_folder, what="a parts folder"
    )  # before the long work

    report = progress or (lambda stage, done, total: None)
    report("assign", 0, 1)
    assignment = assign(graph, parts, method, cut)
    report("assign", 1, 1)
    inside = {"order": order, "block_nodes": asked.block_nodes, "seed": asked.seed}
    members = order_parts(graph, assignment, parts, progress=report, **inside)  # type: ignore[arg-type]
    recorded = {name: getattr(cut, name) for name in heeded} | inside
    layout = Layout(Relabelling.of(members), asked.cut)
    return write_parts(graph, layout, out, method=method, options=recorded, overwrite=asked.overwrite, progress=report)


def order_parts(
    graph: Graph,
    assignment: np.ndarray,
    parts: int,
    *,
    order: str = "metis",
    block_nodes: int = 4000,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[np.ndarray]:
    """Return the original ids of the nodes of each part, in locality order."""
    members = []
    place = np.full(graph.num_nodes, -1, np.int32)
    for k in range(parts):
        nodes = np.flatnonzero(assignment == k)
        if order != "given":
            place[nodes] = np.arange(len(nodes), dtype=np.int32)
            indptr, indices = induced_csr(graph.indptr, graph.indices, nodes, place)
            place[nodes] = -1
            inside = locality_order(
                indptr, indices, symmetric=graph.symmetric, order=order, block_nodes=block_nodes, seed=seed
            )
            nodes = nodes[inside]
        members.append(nodes)
        if progress:
            progress("order", k + 1, parts)
    return members
