"""The graph of some of the nodes: what an inductive model may see while it trains."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Links, Transport, Where
from isthmus.kernels import Csr
from isthmus.local.graph import LocalGraph
from isthmus.shard import Shard


def restrict(graph: LocalGraph, keep: Tensor) -> LocalGraph:
    """The subgraph of the nodes that their owners keep; keep: bool [n]. Degrees are those of the subgraph.

    Every worker calls it at the same time: owners say which halo nodes are kept and what their new degrees are, readers
    say which of them they still read.
    """
    whole, transport = graph.whole, graph.transport
    inner, inner_kept = _keep(whole.inner, keep, keep)
    read = _from_owners(whole.links, keep.to(torch.uint8), transport).bool() & _has_reader(whole.halo, keep)
    halo, halo_kept = _keep(whole.halo, keep, read)
    wanted = _from_readers(whole.links, read.to(torch.uint8), transport)
    degree = (inner.indptr.diff() + halo.indptr.diff()).to(torch.int32)
    degree_of_all = torch.zeros(whole.num_inner, dtype=torch.int32)
    degree_of_all[keep] = degree
    number = _number(keep)
    send_rows = [number[rows[flags.bool()].long()] for rows, flags in zip(whole.links.send_rows, wanted, strict=True)]
    attributes = None
    if whole.edge_attributes is not None:
        of_inner, of_halo = whole.attributes()
        attributes = (of_inner[inner_kept], of_halo[halo_kept])
    return LocalGraph(
        Shard(
            inner=inner,
            halo=halo,
            links=Links(send_rows, [int(rows.sum()) for rows in whole.links.halo.split(read)]),
            nodes=whole.nodes[keep],
            halo_nodes=whole.halo_nodes[read],
            degree=degree,
            halo_degree=_from_owners(whole.links, degree_of_all, transport)[read],
            symmetric=whole.symmetric,
            edge_attr=attributes,
        ),
        transport,
        policy=graph.policy,
        dtype=graph.dtype,
        rows_dtype=graph.rows_dtype,
        seed=graph.seed,
        node_type=None if graph.node_type is None else graph.node_type[keep],
    )


def _keep(csr: Csr, rows: Tensor, cols: Tensor) -> tuple[Csr, Tensor]:
    """The kept rows and columns, numbered anew, and which edges they are."""
    of = csr.edge_rows
    kept = rows[of] & cols[csr.indices.long()]
    counts = torch.bincount(of[kept], minlength=csr.num_rows)[rows]
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Csr(indptr, _number(cols)[csr.indices[kept].long()], int(cols.sum())), kept


def _number(keep: Tensor) -> Tensor:
    """New numbers, int32, of what is kept."""
    return keep.cumsum(0, dtype=torch.int32) - 1


def _has_reader(csr: Csr, rows: Tensor) -> Tensor:
    """The columns that one of the given rows reads."""
    return torch.bincount(csr.indices[rows[csr.edge_rows]], minlength=csr.num_cols) > 0


def _from_owners(links: Links, values: Tensor, transport: Transport) -> Tensor:
    """The owners' values [n] of my halo nodes, [h]."""
    column = values[:, None].contiguous()
    out = column.new_empty(links.halo.ptr[-1], 1)
    leaving = [kernels.gather_rows(column, rows) for rows in links.send_rows]
    transport.exchange(leaving, links.halo.split(out), Where("view", "forward", 0, "ids")).wait()
    return out[:, 0]


def _from_readers(links: Links, values: Tensor, transport: Transport) -> list[Tensor]:
    """What each reader says of my boundary rows, from values [h] of its halo nodes."""
    arriving = [values.new_empty(len(rows), 1) for rows in links.send_rows]
    leaving = links.halo.split(values[:, None].contiguous())
    transport.exchange(leaving, arriving, Where("view", "backward", 0, "ids")).wait()
    return [flags[:, 0] for flags in arriving]
