"""One layer of a mini-batch as a shard: few target rows, computed from the rows that were drawn for them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Links
from isthmus.kernels import Csr, Weights
from isthmus.shard.drawn import Pattern
from isthmus.shard.norm import Norm
from isthmus.shard.shard import Nodes, Shard

_SUM = 16  # the cost of summing a feature of an edge, in multiplications of a dense product


@dataclass(frozen=True)
class LayerNorm(Norm):
    """A norm whose target scales make up for the neighbours that were not drawn; a node's own row counts as it is."""

    own: Tensor | None = None  # [t]: the weight of a target's own row


class Layer(Shard):
    """The drawn edges from s rows that are here, and from h rows of other workers, to t target rows.

    The targets are the first t of the s sources: row r of the result belongs to the node of row r of the input, so the
    layers of a batch are nested. ``scale`` (float64 [t]) is how often each drawn neighbour of a target counts, such as
    degree / number drawn; where edges were drawn with unequal chances, their patterns have weights instead. Degrees are
    those of the whole graph.

    With ``weighted_degrees`` every edge counts by the weight w that it carries besides, and the norms divide by sums of
    weights over *all* neighbours: a sum of w x over those that were drawn, each over its chance, is on average the
    weighted sum of the whole graph, whichever way they were drawn.
    """

    def __init__(
        self,
        inner: Pattern,  # t × s
        nodes: Nodes,  # of the s sources here, and of the h sources elsewhere
        scale: Tensor | None = None,
        halo: Pattern | None = None,  # t × h
        links: Links | None = None,
        weighted_degrees: tuple[Tensor, Tensor] | None = None,  # float64, of the same sources
    ):
        if halo is None:
            nothing = Csr(torch.zeros_like(inner.csr.indptr), inner.csr.indices[:0], 0)
            halo = Pattern(nothing, data=None if inner.data is None else inner.data[:0])
        super().__init__(
            inner=inner.csr,
            halo=halo.csr,
            links=Links([], []) if links is None else links,
            nodes=nodes,
            symmetric=False,
            edge_attr=None if inner.data is None or halo.data is None else (inner.data, halo.data),
        )
        self._patterns, self.scale, self.alone = (inner, halo), scale, links is None
        self.weighted_degrees = weighted_degrees
        if self.weighted:
            inner, halo = inner.weighed(), halo.weighed()
        self.inner_weight, self.halo_weight = inner.weight, halo.weight
        if inner.weight is not None:
            turned = inner.turned()
            self.inner_out, self.inner_out_weight = turned.csr, turned.weight
        if halo.weight is not None:
            turned = halo.turned()
            self.halo_out, self.halo_out_weight = turned.csr, turned.weight

    def transforms_first(self, width: int, out_width: int) -> bool:
        """Return whether P (X Wᵀ) costs less than (P X) Wᵀ, for X of ``width`` columns and W of ``out_width`` rows."""
        sources, edges = self.inner.num_cols + self.num_halo, self.inner.num_edges + self.halo.num_edges
        saved = _SUM * edges * (width - out_width)
        return (sources - self.num_inner) * width * out_width < saved

    @property
    def edge_bytes(self) -> int:
        """The memory of its edges and of what they carry."""
        return sum(p.csr.indices.nbytes + (0 if p.data is None else p.data.nbytes) for p in self._patterns)

    def to(self, device: torch.device) -> Layer:
        """Return the layer on a device; batches are drawn on the host."""
        if device == self.device:
            return self

        inner, halo = (pattern.to(device) for pattern in self._patterns)
        nodes = Nodes(*(one.to(device) for one in self.all_nodes))
        scale = None if self.scale is None else self.scale.to(device)
        degrees = self.weighted_degrees
        degrees = None if degrees is None else (degrees[0].to(device), degrees[1].to(device))
        return Layer(inner, nodes, scale, halo, None if self.alone else self.links.to(device), degrees)

    def norm(self, name: str, dtype: torch.dtype) -> LayerNorm:
        if (name, dtype) not in self._norms:
            self._weigh_in(dtype)
            self.weights_read = self.weighted
            degrees = self.weighted_degrees or (self.degree, self.halo_degree)
            norm, t = Norm.of(name, *degrees, dtype), self.num_inner
            target = None if norm.target is None else norm.target[:t]
            own = target * norm.source[:t] if norm.add_self and target is not None and norm.source is not None else None
            if self.scale is not None:
                scale = self.scale.to(dtype)
                target = scale if target is None else target * scale
            norm = replace(norm, target=target, add_self=False)
            self._norms[name, dtype] = LayerNorm(**vars(norm), own=own)
        found = self._norms[name, dtype]
        assert isinstance(found, LayerNorm), "layers make no other norms"
        return found

    def _weigh_in(self, dtype: torch.dtype) -> None:
        """Convert the weights of the edges to the dtype of the sums; chances are drawn and computed in float64."""
        for name in ("inner_weight", "halo_weight", "inner_out_weight", "halo_out_weight"):
            weight = getattr(self, name)
            if weight is not None:
                setattr(self, name, weight.to(dtype))

    def aggregate_inner(self, x: Tensor, norm: Norm, dtype: torch.dtype | None = None) -> Tensor:
        return _add_own(super().aggregate_inner(x, norm, dtype), x, norm)

    def spread_inner(self, grad: Tensor, norm: Norm, dtype: torch.dtype | None = None) -> Tensor:
        weights = Weights(norm.source, norm.target, self.inner_out_weight)
        out = kernels.aggregate(self.inner_out, grad, weights, dtype=dtype)
        _add_own(out[: len(grad)], grad, norm)
        return out


def _add_own(out: Tensor, x: Tensor, norm: Norm) -> Tensor:
    """Add the nodes' own rows, weighted, to the first rows of a product, in place."""
    if isinstance(norm, LayerNorm) and norm.own is not None:
        out.addcmul_(x[: len(out)].to(out.dtype), norm.own.to(out.dtype)[:, None])
    return out
