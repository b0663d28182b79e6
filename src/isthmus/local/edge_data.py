"""The edges of a worker's graph as PyG writes them, and what they carry."""

from __future__ import annotations

from torch import Tensor

from isthmus.errors import InputError
from isthmus.local.checks import check_all_edges
from isthmus.local.runtime import Runtime


class EdgeData:
    """The edges that a model may read, in one order: `edge_index`, `edge_weight`, `edge_attr`."""

    runtime: Runtime
    edge_attr_read = False
    """Whether a model has asked for what the edges carry."""

    @property
    def edge_index(self) -> Tensor:
        """The edges in PyG's form, int64 [2, E]: sources are rows of `halo(x)`, targets are inner rows."""
        check_all_edges(self.runtime.whole, "graph.edge_index")
        return self.runtime.drawn.edge_index

    @property
    def edge_attr(self) -> Tensor | None:
        """Attributes in the order of `edge_index`, or None."""
        if self.runtime.layers is not None and self.runtime.whole.edge_attributes is not None:
            raise InputError("mini-batches carry no edge attributes yet: take a recipe of the full graph")
        check_all_edges(self.runtime.whole, "graph.edge_attr")
        self.edge_attr_read = True
        return self.runtime.drawn.edge_attr

    @property
    def edge_weight(self) -> Tensor | None:
        """The one attribute of every edge, [E], in the order of `edge_index`; None if there is none, or several."""
        attributes = self.runtime.whole.edge_attributes
        if attributes is None or self.runtime.whole.edge_columns != 1:
            return None
        weights = self.edge_attr
        return None if weights is None else weights.reshape(-1)
