"""The graph of some of the nodes: what an inductive model may see while it trains."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Where
from isthmus.kernels import Csr
from isthmus.local.graph import LocalGraph

_WHERE = Where("view", "forward", 0, "ids")


def restrict(graph: LocalGraph, keep: Tensor) -> LocalGraph:
    """The subgraph of the nodes that their owners keep; keep: bool [n]. Degrees are those of the subgraph.

    Every worker calls it at the same time: which halo nodes are kept, and their new degrees, come from their owners.
    """
    keep_halo = _fetch(graph, keep.to(torch.uint8)).bool()
    inner, inner_kept = _keep(graph.inner, keep, keep)
    halo, halo_kept = _keep(graph.halo_edges, keep, keep_halo)
    degree = (inner.indptr.diff() + halo.indptr.diff()).to(torch.int32)
    full_degree = torch.zeros(graph.num_inner, dtype=torch.int32)
    full_degree[keep] = degree
    owners = range(graph.transport.size)
    kept_per_owner = [int(rows.sum()) for rows in graph.halo_slices(keep_halo)]
    number = keep.cumsum(0, dtype=torch.int32) - 1
    attributes = None
    if graph.edge_attributes is not None:
        of_inner, of_halo = graph.edge_attributes
        attributes = (of_inner[inner_kept], of_halo[halo_kept])
    return LocalGraph(
        inner=inner,
        halo=halo,
        nodes=graph.nodes[keep],
        halo_nodes=graph.halo_nodes[keep_halo],
        degree=degree,
        halo_degree=_fetch(graph, full_degree)[keep_halo],
        send_rows=[number[rows[keep[rows.long()]].long()] for rows in graph.send_rows],
        halo_ptr=[sum(kept_per_owner[:q]) for q in owners] + [sum(kept_per_owner)],
        symmetric=graph.symmetric,
        transport=graph.transport,
        savings=graph.savings,
        rows_dtype=graph.rows_dtype,
        seed=graph.seed,
        edge_attr=attributes,
        node_type=None if graph.node_type is None else graph.node_type[keep],
    )


def _keep(csr: Csr, rows: Tensor, cols: Tensor) -> tuple[Csr, Tensor]:
    """The kept rows and columns, numbered anew, and which edges they are."""
    of = csr.edge_rows
    kept = rows[of] & cols[csr.indices.long()]
    counts = torch.bincount(of[kept], minlength=csr.num_rows)[rows]
    number = cols.cumsum(0, dtype=torch.int32) - 1
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Csr(indptr, number[csr.indices[kept].long()], int(cols.sum())), kept


def _fetch(graph: LocalGraph, values: Tensor) -> Tensor:
    """The owners' values [n] of my halo nodes, [h]."""
    column = values[:, None].contiguous()
    out = column.new_empty(graph.num_halo, 1)
    leaving = [kernels.gather_rows(column, rows) for rows in graph.send_rows]
    graph.transport.exchange(leaving, graph.halo_slices(out), _WHERE).wait()
    return out[:, 0]
