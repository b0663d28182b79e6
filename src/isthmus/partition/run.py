"""Partition a graph from start to end: assign, order, write."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.errors import InputError
from isthmus.files.atomic import check_target
from isthmus.graph.graph import Graph
from isthmus.options import options_of, shows
from isthmus.outside import is_outside
from isthmus.partition.adjacency import induced_csr
from isthmus.partition.book import CUTS, Book, is_parts_folder
from isthmus.partition.border import Layout, Relabelling
from isthmus.partition.fewest_rows import assign_for_cover
from isthmus.partition.methods import METHODS, CutOptions, Method, assign, fill_empty, from_outside
from isthmus.partition.options import PartitionOptions
from isthmus.partition.order import check_order, locality_order
from isthmus.partition.parts import write_parts
from isthmus.partition.vertex import VERTEX_METHODS, VertexMethod, VertexOptions, masters, place_edges

Progress = Callable[[str, int, int], None]
STREAMS = ("ldg", "bytegnn")  # methods for graphs that METIS, and its order, may not hold
METIS_EDGES = 200_000_000  # per part: above, the order would need 20 GiB in METIS


@shows(options_of(PartitionOptions))
def partition(
    graph: Graph,
    parts: int,
    method: str | None = None,
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
    chosen = asked.method or ("hep" if asked.cut == "vertex" else "metis")
    how, chosen_method = chosen_options(asked, chosen), method_of(asked.cut, chosen)
    order = asked.order or ("ldg" if chosen in STREAMS or graph.num_edges > METIS_EDGES * parts else "metis")
    check_order(order, asked.block_nodes)
    check_target(
        Path(out), replace=asked.overwrite, ours=is_parts_folder, what="a parts folder"
    )  # before the long work

    report = progress or (lambda stage, done, total: None)
    report("assign", 0, 1)
    edge_part = None
    if isinstance(how, VertexOptions):
        assert isinstance(chosen_method, VertexMethod), "these are the options of a vertex-cut"
        how = chosen_method.settle(graph, how)
        edge_part = place_edges(graph, parts, chosen, how, lambda done, total: report("assign", done, total))
        host = how.host_of(parts) if how.weight else None  # with gamma 0 hosts are unknown
        owner = fill_empty(masters(graph, parts, edge_part, host), parts, graph.degree)
    elif asked.cut == "cover" and chosen == "metis" and asked.objective is None:
        owner, how = assign_for_cover(graph, parts, how, lambda done, total: report("assign", done, total))
    else:
        owner = assign(graph, parts, chosen, how, lambda done, total: report("assign", done, total))
    report("assign", 1, 1)
    inside = {"order": order, "block_nodes": asked.block_nodes, "seed": asked.seed}
    members = order_parts(graph, owner, parts, progress=report, **inside)  # type: ignore[arg-type]
    layout = Layout(Relabelling.of(members), asked.cut, edge_part)
    recorded = {name: _in_json(getattr(how, name)) for name in chosen_method.takes} | inside
    return write_parts(graph, layout, out, method=chosen, options=recorded, overwrite=asked.overwrite, progress=report)


def _in_json(value: Any) -> Any:
    """Return the value of an option as json can say it: it has no infinite numbers."""
    return "inf" if value == float("inf") else value


def method_of(cut: str, name: str) -> Method | VertexMethod:
    """Return the method of that name for a cut, or refuse cut or name."""
    if cut not in CUTS:
        raise InputError(f"unknown cut '{cut}': choose one of {', '.join(CUTS)}")
    known: Mapping[str, Method | VertexMethod] = VERTEX_METHODS if cut == "vertex" else METHODS
    if is_outside(name):
        return from_outside(name, VertexMethod) if cut == "vertex" else from_outside(name, Method)
    if name not in known:
        raise InputError(f"unknown partition method '{name}' for --cut {cut}: choose one of {', '.join(known)}")
    return known[name]


def chosen_options(asked: PartitionOptions, method: str) -> CutOptions | VertexOptions:
    """Return the options of the method; refuse those that it does not use."""
    heeded = method_of(asked.cut, method).takes
    own = {f.name for kind in (CutOptions, VertexOptions) for f in fields(kind)} - {"seed"}
    given = {name: getattr(asked, name) for name in sorted(own) if getattr(asked, name) is not None}
    for name in given:
        if name not in heeded:
            raise InputError(f"{method} does not use {name}: leave it out (it takes: {', '.join(heeded) or 'nothing'})")
    return (VertexOptions if asked.cut == "vertex" else CutOptions)(seed=asked.seed, **given)


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
