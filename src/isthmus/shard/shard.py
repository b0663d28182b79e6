"""One worker's edges of the graph that a step trains on, and the links that bring halo rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Links, Transport, Where
from isthmus.kernels import Csr, Weights
from isthmus.shard.norm import Norm

EdgeAttr = tuple[Tensor, Tensor] | Callable[[], tuple[Tensor, Tensor]] | None  # made when first read, if callable


class Nodes(NamedTuple):
    """The nodes of a shard: original ids, and degrees in the whole graph."""

    inner: Tensor  # int64 [n]
    halo: Tensor  # int64 [h]
    degree: Tensor  # [n]
    halo_degree: Tensor  # [h]

    def with_halo(self, chosen: Tensor) -> Nodes:
        """Return all inner nodes and the chosen halo nodes (numbers or bool)."""
        return Nodes(self.inner, self.halo[chosen], self.degree, self.halo_degree[chosen])


class Shard:
    """One worker's edges, n × n between inner nodes and n × h from halo nodes, with the links that bring the halo rows.

    The whole graph is one of these; samplers make others, with fewer edges or with weights on edges and halo nodes.
    Aggregations come in two halves, so that the inner half can run while halo rows are under way.
    """

    alone = False
    """Whether every row that it reads is here on every worker, so that nothing crosses."""

    replicated = False
    """Whether nodes have replicas on several workers, whose rows a model computes everywhere (a vertex-cut)."""

    def __init__(
        self,
        inner: Csr,
        halo: Csr,
        links: Links,
        nodes: Nodes,
        symmetric: bool,  # the inner edges are their own transpose
        edge_attr: EdgeAttr = None,  # of the inner and of the halo edges
    ):
        self.inner, self.halo, self.links, self.symmetric = inner, halo, links, symmetric
        self.nodes, self.halo_nodes, self.degree, self.halo_degree = nodes
        self.edge_attributes = edge_attr
        # Weights of edges in each pattern and its transpose; None: one.
        self.inner_weight: Tensor | None = None
        self.halo_weight: Tensor | None = None
        self.inner_out_weight: Tensor | None = None
        self.halo_out_weight: Tensor | None = None
        self.weighted_degrees: tuple[Tensor, Tensor] | None = None  # of inner and halo nodes (`shard.weighted`)
        self.weights_read = False  # whether a norm was asked for that heeds them
        self._norms: dict[tuple[str, torch.dtype], Norm] = {}
        self._totals: tuple[int, int] | None = None
        self.stored_cover: Tensor | None = None  # bool [h]: the halo nodes of a cover that came with the part
        self.needed_links: Links | None = (
            None  # links of the needed rows only (`NeededRows`), made when first asked for
        )

    @property
    def device(self) -> torch.device:
        return self.nodes.device

    @property
    def num_inner(self) -> int:
        return self.inner.num_rows

    @property
    def num_owned(self) -> int:
        """The number of nodes that belong to this worker."""
        return self.inner.num_rows

    @property
    def num_halo(self) -> int:
        return self.halo.num_cols

    @property
    def num_edges(self) -> int:
        return self.inner.num_edges + self.halo.num_edges

    @property
    def all_nodes(self) -> Nodes:
        """The nodes, as another shard of the same takes them."""
        return Nodes(self.nodes, self.halo_nodes, self.degree, self.halo_degree)

    def norm(self, name: str, dtype: torch.dtype) -> Norm:
        if (name, dtype) not in self._norms:
            degrees = self.weighted_degrees or (self.degree, self.halo_degree)
            self.weights_read = self.weighted
            self._norms[name, dtype] = Norm.of(name, *degrees, dtype)
        return self._norms[name, dtype]

    @property
    def weighted(self) -> bool:
        """Whether every edge counts by its weight."""
        return self.weighted_degrees is not None

    def leg_links(self, pass_: str, leg: str) -> Links:
        """Return the links of one leg of a pass: under a vertex-cut not all mirrors take part in both."""
        return self.links

    @property
    def picked(self) -> Tensor | None:
        """The numbers of the halo nodes in the whole graph, int64; None: all of them."""
        return None

    def totals(self, transport: Transport) -> tuple[int, int]:
        """Return the number of edges between parts and of all edges, summed over all workers."""
        if self._totals is None:
            counts = torch.tensor([self.halo.num_edges, self.halo.num_edges + self.inner.num_edges])
            cut, edges = transport.all_reduce(counts, Where("edges", "reduce", 0, "ids")).tolist()
            self._totals = cut, edges
        return self._totals

    # P [X; X_halo] and its transpose, each in two halves

    def aggregate_inner(self, x: Tensor, norm: Norm, dtype: torch.dtype | None = None) -> Tensor:
        """Return target · (A_inner + [self] I) source · X, [n, F], in the dtype of the sums or in bf16."""
        weights = Weights(norm.target, norm.source, self.inner_weight, norm.add_self)
        return kernels.aggregate(self.inner, x, weights, dtype=dtype)

    def aggregate_halo(self, x: Tensor, norm: Norm, out: Tensor) -> None:
        """Add the halo half: out += target · A_halo halo · X_halo."""
        weights = Weights(norm.target, norm.halo, self.halo_weight)
        kernels.aggregate(self.halo_in, x, weights, out, accumulate=True)

    def spread_inner(self, grad: Tensor, norm: Norm, dtype: torch.dtype | None = None) -> Tensor:
        """Apply the transpose of `aggregate_inner`, [n, F]."""
        weights = Weights(norm.source, norm.target, self.inner_out_weight, norm.add_self)
        return kernels.aggregate(self.inner_out, grad, weights, dtype=dtype)

    def spread_halo(self, grad: Tensor, norm: Norm, out: Tensor) -> None:
        """Apply the transpose of `aggregate_halo`; out [h, F] is overwritten."""
        kernels.aggregate(self.halo_out, grad, Weights(norm.halo, norm.target, self.halo_out_weight), out)

    def halo_squares(self, norm: Norm) -> Tensor:
        """Return Σ_i P_ij² of every halo node j, float64 [h]: by what its row's variance is multiplied here."""
        ones = torch.ones(self.num_inner, 1, dtype=torch.float64, device=self.device)
        scales = norm.halo, norm.target, self.halo_out_weight
        halo, target, weight = (each if each is None else each.double().square() for each in scales)
        return kernels.aggregate(self.halo_out, ones, Weights(halo, target, weight))[:, 0]

    # Patterns derived from the two, made when first needed

    @cached_property
    def halo_in(self) -> Csr:
        """The halo edges without the many rows that read no halo node."""
        return self.halo.compact()

    @cached_property
    def inner_out(self) -> Csr:
        """The transpose of the inner edges; for a symmetric graph it is the same pattern."""
        return self.inner if self.symmetric else kernels.transpose(self.inner)[0]

    @cached_property
    def halo_out(self) -> Csr:
        """The transpose of the halo edges: h × n."""
        return kernels.transpose(self.halo)[0]

    @cached_property
    def full(self) -> Csr:
        """Inner and halo edges in one pattern, n × (n + h); halo columns come after those of rows that are here."""
        here = self.inner.num_cols
        cols = torch.cat([self.inner.indices, self.halo.indices + here])
        indptr = self.inner.indptr + self.halo.indptr
        return Csr(indptr, cols[self._full_order], here + self.num_halo)

    @cached_property
    def edge_index(self) -> Tensor:
        return torch.stack([self.full.indices.long(), self.full.edge_rows])

    @cached_property
    def edge_attr(self) -> Tensor | None:
        return None if self.edge_attributes is None else torch.cat(self.attributes())[self._full_order]

    @property
    def edge_columns(self) -> int:
        """The number of attributes of an edge."""
        if self.edge_attributes is None:
            return 0
        inner = self.attributes()[0]
        return 1 if inner.dim() == 1 else inner.shape[1]

    def attributes(self) -> tuple[Tensor, Tensor]:
        """Return the attributes of the inner and of the halo edges; only for graphs that have them."""
        assert self.edge_attributes is not None, "this graph has no edge attributes"
        return self.edge_attributes() if callable(self.edge_attributes) else self.edge_attributes

    def attributes_of(self, inner: Tensor | None, halo: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """Return the attributes of some inner and some halo edges (numbers or bool; None: all), where there are any."""
        if self.edge_attributes is None:
            return None
        of_inner, of_halo = self.attributes()
        return of_inner if inner is None else of_inner[inner], of_halo if halo is None else of_halo[halo]

    @property
    def _full_order(self) -> Tensor:
        return torch.argsort(torch.cat([self.inner.edge_rows, self.halo.edge_rows]), stable=True)

    @cached_property
    def attention_pattern(self) -> tuple[Csr, tuple[Csr, Tensor]]:
        """The pattern `full` with a self loop in front of every row, and its transpose."""
        pattern = self.full.after(torch.arange(self.num_inner, device=self.device))
        return pattern, kernels.transpose(pattern)

    @cached_property
    def attention_weight(self) -> Tensor | None:
        """The weights of the edges of `attention_pattern`, one for a self loop; None: they have none."""
        if not self.weighted or self.edge_attr is None:
            return None
        return after_loops(self.edge_attr.reshape(-1), self.attention_pattern[0], self.num_inner)


def after_loops(weight: Tensor, looped: Csr, rows: int) -> Tensor:
    """Return the weights of a pattern with one more edge in front of each of its first rows; those weigh one."""
    every = weight.new_ones(looped.num_edges)
    own = torch.zeros(looped.num_edges, dtype=torch.bool, device=weight.device)
    own[looped.indptr[:rows]] = True
    every[~own] = weight
    return every
