"""A mini-batch whose drawn neighbours are corrected by control variates, as a model sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.local.graph import LocalGraph, Rows, Same
from isthmus.local.rows import AsMade
from isthmus.shard import Layer


@dataclass
class Controls:
    """The control variates of one step on one worker: rows H̄ that were kept of earlier steps, or are exact."""

    x: Tensor
    """The batch's features, of which P X is known."""
    aggregated: Tensor
    """P X of my nodes of the first layer, [t, F]."""
    layers: Sequence[Layer]
    """For every site but the first the neighbours that its draw misses, each by how much."""
    kept: Sequence[Tensor]
    """The rows H̄ that these layers read."""
    made: list[Tensor] = field(default_factory=list)
    """The rows H of my nodes at those sites, for later steps; they come while the model runs."""

    def missing(self, site: int, layer: Layer, norm: str, dtype: torch.dtype) -> Tensor:
        """Return (P - P̂) H̄ for the rows that a site computes, [t, F]."""
        if site == 0:
            return self.aggregated - layer.aggregate_inner(self.x, layer.norm(norm, dtype)).to(self.aggregated.dtype)
        missed = self.layers[site - 1]
        weights = replace(missed.norm(norm, dtype), own=None)  # a node's own row is never missed
        return missed.aggregate_inner(self.kept[site - 1], weights)


class ControlledGraph(LocalGraph):
    """A graph whose aggregations of drawn neighbours are P̂ H + (P - P̂) H̄: right on average, and of less variance.

    H̄ has no gradient. It is made for one forward pass.
    """

    def __init__(self, graph: LocalGraph, controls: Controls):
        super().__init__(graph.runtime, graph.node_type)
        self.controls, self.site = controls, 0
        self._before: tuple[Tensor, Tensor] | None = None  # rows after the last dropout, and before it

    def propagate(
        self,
        x: Rows,
        weight: Tensor,
        norm: str = "gcn",
        only: Tensor | None = None,
        *,
        root: Tensor | None = None,
        bias: Tensor | None = None,
        as_made: AsMade = False,
    ) -> Tensor:
        layer = self.runtime.next_layer
        assert isinstance(x, Tensor), "batches have plain rows"
        assert layer is not None, "a batch has a layer for every site"
        if self.site:
            after, before = self._before or (x, x)
            self.controls.made.append((before if after is x else x).detach())
        missing = self.controls.missing(self.site, layer, norm, kernels.sum_dtype(x.dtype))
        self.site += 1
        out = super().propagate(x, weight, norm, only, root=root, bias=bias, as_made=bool(as_made))
        out = out + self.linear(missing.to(weight.dtype), weight, as_made=bool(as_made)).to(out.dtype)
        return torch.relu(out) if as_made == "relu" else out

    def dropout(self, x: Same, p: float, *, relu: bool = False) -> Same:
        out = super().dropout(x, p, relu=relu)
        if isinstance(x, Tensor) and isinstance(out, Tensor):
            self._before = out, x.detach().relu() if relu else x
        return out
