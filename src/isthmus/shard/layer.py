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
    """

    def __init__(
        self,
        inner: Pattern,  # t × s
        nodes: Nodes,  # of the s sources here, and of the h sources elsewhere
        scale: Tensor | None = None,
        halo: Pattern | None = None,  # t × h
        links: Links | None = None,
    ):
        nothing = Csr(torch.zeros_like(inner.csr.indptr), inner.csr.indices[:0], 0)
        super().__init__(
            inner=inner.csr,
            halo=nothing if halo is None else halo.csr,
            links=Links([], []) if links is None else links,
            nodes=nodes,
            symmetric=False,
        )
        self.scale, self.alone = scale, links is None
        self.inner_weight = inner.weight
        if inner.weight is not None:
            turned = inner.turned()
            self.inner_out, self.inner_out_weight = turned.csr, turned.weight
        if halo is not None and halo.weight is not None:
            turned, self.halo_weight = halo.turned(), halo.weight
            self.halo_out, self.halo_out_weight = turned.csr, turned.weight

    def transforms_first(self, width: int, out_width: int) -> bool:
        """Return whether P (X Wᵀ) costs less than (P X) Wᵀ, for X of ``width`` columns and W of ``out_width`` rows."""
        sources, edges = self.inner.num_cols + self.num_halo, self.inner.num_edges + self.halo.num_edges
        saved = _SUM * edges * (width - out_width)
        return (sources - self.num_inner) * width * out_width < saved

    def to(self, device: torch.device) -> Layer:
        """Return the layer on a device; batches are drawn on the host."""
        if device == self.device:
            return self

        def there(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor.to(device)

        inner = Pattern(self.inner.to(device), there(self.inner_weight))
        nodes = Nodes(*(one.to(device) for one in self.all_nodes))
        if self.alone:
            return Layer(inner, nodes, there(self.scale))
        halo = Pattern(self.halo.to(device), there(self.halo_weight))
        return Layer(inner, nodes, there(self.scale), halo, self.links.to(device))

    def norm(self, name: str, dtype: torch.dtype) -> LayerNorm:
        if (name, dtype) not in self._norms:
            norm, t = Norm.of(name, self.degree, self.halo_degree, dtype), self.num_inner
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

    def aggregate_inner(
        self, x: Tensor, norm: Norm, dtype: torch.dtype | None = None, out: Tensor | None = None
    ) -> Tensor:
        return _add_own(super().aggregate_inner(x, norm, dtype, out), x, norm)

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
