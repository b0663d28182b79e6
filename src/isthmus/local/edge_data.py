"""The edges of a worker's graph as PyG writes them, and what they carry."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from isthmus.errors import InputError
from isthmus.local.checks import check_all_edges
from isthmus.local.runtime import Runtime
from isthmus.shard import Shard


class EdgeData:
    """The edges that a model may read, in one order: `edge_index`, `edge_weight`, `edge_attr`.

    In a mini-batch every layer has edges of its own. A model reads those of the layer whose rows it has just fetched by
    `halo` or `pair`; a model that is given them once, as a parameter of its forward, gets those of all layers, one
    after another (`carried`), and each convolution takes its own out of what the model has made of them (`of_layer`).
    """

    runtime: Runtime
    edge_attr_read = False
    """Whether a model has asked for what the edges carry."""
    _given: ReferenceType[Tensor] | None = None

    @property
    def edge_index(self) -> Tensor:
        """The edges in PyG's form, int64 [2, E]: sources are rows of `halo(x)`, targets are inner rows."""
        check_all_edges(self.runtime.whole, "graph.edge_index")
        return self._edges.edge_index

    @property
    def edge_attr(self) -> Tensor | None:
        """Attributes in the order of `edge_index`, or None."""
        check_all_edges(self.runtime.whole, "graph.edge_attr")
        self.edge_attr_read = True
        return None if self.runtime.whole.edge_attributes is None else self._edges.edge_attr

    @property
    def edge_weight(self) -> Tensor | None:
        """The one attribute of every edge, [E], in the order of `edge_index`; None if there is none, or several."""
        return self._as_weight(self.edge_attr) if self.runtime.whole.edge_columns == 1 else None

    def carried(self, name: str) -> Tensor | None:
        """Return `edge_weight` or `edge_attr` for a whole forward pass: in a mini-batch, those of all layers."""
        run = self.runtime
        replicated = run.whole.replicated  # of which only convolutions that read no `edge_index` make use
        if not run.whole.edge_columns or (run.layers is None and not replicated):
            return getattr(self, name)
        self.edge_attr_read = True
        shards: Sequence[Shard] = run.layers or [run.whole]
        pieces = [shard.edge_attr for shard in shards]
        every = torch.cat([piece for piece in pieces if piece is not None])
        if name == "edge_attr":
            return every
        return self._as_weight(every) if self.runtime.whole.edge_columns == 1 else None

    def of_layer(self, of_edges: Tensor) -> Tensor:
        """Return the rows of the edges that the last exchange read, from those of all layers (or of these alone)."""
        if self.runtime.layers is None:
            return of_edges
        counts = [layer.num_edges for layer in self.runtime.layers]
        here = next(i for i, layer in enumerate(self.runtime.layers) if layer is self._edges)
        return of_edges.split(counts)[here] if len(of_edges) == sum(counts) else of_edges

    def is_weight(self, of_edges: Tensor | None) -> bool:
        """Return whether this is the `edge_weight` that the graph has given, and not something made of it."""
        return of_edges is not None and self._given is not None and self._given() is of_edges

    @property
    def _edges(self) -> Shard:
        """The edges that the last exchange read; of the full graph, those of every exchange."""
        run = self.runtime
        if run.layers is not None and run.drawn is run.whole:
            raise InputError(
                "every layer of a mini-batch has edges of its own: read them after graph.halo or graph.pair, not before"
            )
        return run.drawn

    def _as_weight(self, attributes: Tensor | None) -> Tensor | None:
        weight = None if attributes is None else attributes.reshape(-1)
        self._given = None if weight is None else ref(weight)
        return weight
