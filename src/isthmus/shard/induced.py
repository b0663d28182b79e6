"""The subgraph induced by some of the nodes: all that an inductive model may see while it trains."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.comm import Links, Transport, Where
from isthmus.kernels import Csr
from isthmus.shard.shard import Nodes, Shard


def induced_shard(whole: Shard, keep: Tensor, transport: Transport) -> Shard:
    """Return the subgraph of the nodes that their owners keep; keep: bool [n]. Degrees are those of the subgraph.

    Every worker calls it at the same time: owners say which halo nodes are kept and what their new degrees are, readers
    say which of them they still read.
    """
    inner, inner_kept = _keep(whole.inner, keep, keep)
    where = Where("induced subgraph", "setup", 0, "ids")
    kept_there = whole.links.pull(keep.to(torch.uint8), transport, where).bool()
    read = kept_there & _has_reader(whole.halo, keep)
    halo, halo_kept = _keep(whole.halo, keep, read)
    wanted = whole.links.push(read, transport, where).wait()
    degree = (inner.indptr.diff() + halo.indptr.diff()).to(torch.int32)
    degree_of_all = degree.new_zeros(whole.num_inner)
    degree_of_all[keep] = degree
    number = _number(keep)
    send_rows = [number[rows[flags].long()] for rows, flags in zip(whole.links.send_rows, wanted, strict=True)]
    halo_degree = whole.links.pull(degree_of_all, transport, where)[read]
    return Shard(
        inner=inner,
        halo=halo,
        links=Links(send_rows, [int(rows.sum()) for rows in whole.links.mirrors.split(read)]),
        nodes=Nodes(whole.nodes[keep], whole.halo_nodes[read], degree, halo_degree),
        symmetric=whole.symmetric,
        edge_attr=whole.attributes_of(inner_kept, halo_kept),
    )


def _keep(csr: Csr, rows: Tensor, cols: Tensor) -> tuple[Csr, Tensor]:
    """Return the pattern of the kept rows and columns with new numbers, and a mask of the kept edges."""
    of = csr.edge_rows
    kept = rows[of] & cols[csr.indices.long()]
    counts = torch.bincount(of[kept], minlength=csr.num_rows)[rows]
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Csr(indptr, _number(cols)[csr.indices[kept].long()], int(cols.sum())), kept


def _number(keep: Tensor) -> Tensor:
    """Return the new numbers (int32) of what is kept."""
    return keep.cumsum(0, dtype=torch.int32) - 1


def _has_reader(csr: Csr, rows: Tensor) -> Tensor:
    """Return which columns at least one of the given rows reads."""
    return torch.bincount(csr.indices[rows[csr.edge_rows]], minlength=csr.num_cols) > 0
