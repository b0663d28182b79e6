"""Edge weights: aggregations of a shard that count every edge by its weight, and degrees that are sums of weights."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Transport, Where
from isthmus.errors import InputError
from isthmus.shard.shard import Shard
from isthmus.shard.vertex import VertexShard


def weigh(shard: Shard, transport: Transport) -> None:
    """Let the one attribute of every edge be its weight; every worker calls it at the same time.

    The norms then divide by weighted degrees, d_i = Σ_j w_ij; owners tell readers those of halo nodes.
    """
    inner, halo = (one.reshape(-1) for one in shard.attributes())
    if min(float(one.min()) if len(one) else 0.0 for one in (inner, halo)) < 0:
        raise InputError(
            "edges have weights below 0, for which norms are not defined: leave them out by --edge-weights none"
        )
    if isinstance(shard, VertexShard):
        shard.weigh(transport)
        return
    degree = torch.zeros(shard.num_inner, dtype=torch.float64, device=inner.device)
    for csr, weight in ((shard.inner, inner), (shard.halo, halo)):
        degree.index_add_(0, csr.edge_rows, weight.double())
    where = Where("edge weights", "setup", 0, "ids")
    shard.weighted_degrees = degree, shard.links.pull(degree, transport, where)
    shard.inner_weight, shard.halo_weight = inner, halo
    shard.inner_out, shard.inner_out_weight = turned(shard.inner, inner)
    shard.halo_out, shard.halo_out_weight = turned(shard.halo, halo)


def turned(csr: kernels.Csr, weight: Tensor) -> tuple[kernels.Csr, Tensor]:
    """Return the transpose of a weighted pattern."""
    out, order = kernels.transpose(csr)
    return out, weight[order]
