"""LocalGraph: what a worker's model sees of the graph."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Transport, Where
from isthmus.errors import InputError
from isthmus.kernels import Csr, SparseMatrix
from isthmus.local import exchange
from isthmus.local.norm import Norm
from isthmus.local.savings import Savings
from isthmus.partition.book import Part


class LocalGraph:
    """One part of the graph under an edge-cut: its inner nodes, the halo nodes they read, and the links to the owners.

    A model calls `aggregate` or `halo`; the k-th such call of a forward pass is site k. Everything else here is
    for models of one's own: ``nodes`` (original ids), ``degree``, ``edge_index``, ``edge_attr``.

    Shapes: n inner nodes, h halo nodes, F features.
    """

    def __init__(
        self,
        *,
        inner: Csr,  # n × n, edges inner → inner
        halo: Csr,  # n × h, edges halo → inner
        nodes: Tensor,  # int64 [n], original ids
        halo_nodes: Tensor,  # int64 [h]
        degree: Tensor,  # [n], in the whole graph
        halo_degree: Tensor,  # [h]
        send_rows: Sequence[Tensor],  # int32, per worker: my rows that it reads, in the order of its halo
        halo_ptr: Sequence[int],  # [size + 1]: halo rows ptr[q]:ptr[q+1] belong to worker q
        symmetric: bool,
        transport: Transport,
        savings: Savings | None = None,
        rows_dtype: torch.dtype | None = None,
        seed: int = 0,
        edge_attr: tuple[Tensor, Tensor] | None = None,  # of the inner and of the halo edges
        node_type: Tensor | None = None,
    ):
        self.inner, self.nodes, self.halo_nodes = inner, nodes, halo_nodes
        self.degree, self.halo_degree, self.send_rows = degree, halo_degree, list(send_rows)
        self.halo_ptr, self.symmetric, self.transport = list(halo_ptr), symmetric, transport
        self.savings, self.rows_dtype, self.seed = savings or Savings(), rows_dtype, seed
        self.node_type = node_type
        self.halo_edges, self.edge_attributes = halo, edge_attr
        self.halo_in = halo.compact()  # for aggregation: most rows read no halo
        self._norms: dict[tuple[str, torch.dtype], Norm] = {}
        self._fixed: Tensor | None = None
        self._fixed_results: dict[str, Tensor] = {}
        self._buffers: dict[tuple, Tensor] = {}
        self.begin(0)

    @classmethod
    def from_part(cls, part: Part, transport: Transport, symmetric: bool, **options) -> LocalGraph:
        """The graph of a part on disk; memory-mapped structure stays memory-mapped."""
        n, h, ends = len(part.nodes), len(part.halo_nodes), part.send_ptr
        attributes = None
        if part.inner_edge_attr is not None and part.halo_edge_attr is not None:
            attributes = (as_tensor(part.inner_edge_attr), as_tensor(part.halo_edge_attr))
        return cls(
            inner=Csr(as_tensor(part.inner_indptr), as_tensor(part.inner_indices), n),
            halo=Csr(as_tensor(part.halo_indptr), as_tensor(part.halo_indices), h),
            nodes=as_tensor(part.nodes),
            halo_nodes=as_tensor(part.halo_nodes),
            degree=as_tensor(part.degree),
            halo_degree=as_tensor(part.halo_degree),
            send_rows=[as_tensor(part.send_rows[ends[q] : ends[q + 1]]) for q in range(transport.size)],
            halo_ptr=[int(end) for end in part.halo_ptr],
            symmetric=symmetric,
            transport=transport,
            edge_attr=attributes,
            node_type=None if part.node_type is None else as_tensor(part.node_type),
            **options,
        )

    # What a model calls

    def aggregate(self, x: Tensor, norm: str = "gcn") -> Tensor:
        r"""Aggregated rows of the inner nodes, halo neighbours included, [n, F].

        .. math:: gcn: \sum_{j \in N(i) \cup i} \frac{x_j}{\sqrt{(d_i + 1)(d_j + 1)}}, \quad
                  mean: \frac{1}{d_i} \sum_{j \in N(i)} x_j, \quad sum: \sum_{j \in N(i)} x_j

        with d the degrees in the whole graph. ``x``: this worker's inner rows, [n, F].
        """
        self._check_rows(x)
        site = self._next_site()
        return self._once(f"aggregate {norm}", x, lambda: exchange.aggregate(self, x, self.norm(norm, x.dtype), site))

    def halo(self, x: Tensor) -> Tensor:
        """Inner rows, then the halo rows fetched from their owners, [n + h, F]; rows as `edge_index` numbers them."""
        self._check_rows(x)
        site = self._next_site()
        return self._once("halo", x, lambda: exchange.halo(self, x, site))

    def attend(self, target: Tensor, source: Tensor, x: Tensor, slope: float = 0.2) -> Tensor:
        """Softmax attention over N(i) ∪ i (`kernels.attention`): target [n, H]; source, x [n + h, H(·D)] → [n, H·D]."""
        return exchange.attend(self, target, source, x, slope)

    def dropout(self, x: Tensor, p: float, *, relu: bool = False) -> Tensor:
        """Dropout (after relu, if asked) whose mask is a function of (seed, step, call, node, feature).

        It is therefore the same for any number of workers, and the same at the owner and at every reader of a row.
        """
        return exchange.dropout(x, self.nodes, self._next_stream(), p, relu)

    def dropout_sparse(self, x: SparseMatrix, p: float) -> SparseMatrix:
        """The same for sparse feature rows."""
        return x.dropout(self.nodes, self._next_stream(), p)

    @cached_property
    def edge_index(self) -> Tensor:
        """Edges as PyG writes them, int64 [2, E]: sources number `halo(x)`, targets number the inner rows."""
        return torch.stack([self.full.indices.long(), self.full.edge_rows])

    @cached_property
    def edge_attr(self) -> Tensor | None:
        """Attributes in the order of `edge_index`, or None."""
        if self.edge_attributes is None:
            return None
        return torch.cat(self.edge_attributes)[self._full_order]

    # What the engine calls

    def begin(self, step: int) -> None:
        """A forward pass of step `step` begins: sites are counted from 0 again."""
        self.step, self._sites, self._dropouts = step, 0, 0

    def fix(self, x: Tensor) -> Tensor:
        """Declares rows that never change (the input features); returns them."""
        self._fixed, self._fixed_results = x, {}
        return x

    @property
    def num_inner(self) -> int:
        return len(self.nodes)

    @property
    def num_halo(self) -> int:
        return len(self.halo_nodes)

    def norm(self, name: str, dtype: torch.dtype) -> Norm:
        if (name, dtype) not in self._norms:
            self._norms[name, dtype] = Norm.of(name, self.degree, self.halo_degree, dtype)
        return self._norms[name, dtype]

    def is_fixed(self, x: Tensor) -> bool:
        """Whether what is made of x alone needs to be made only once."""
        return self.savings.aggregate_once and x is self._fixed

    # Patterns derived from the two CSRs, made when first needed

    @cached_property
    def inner_out(self) -> Csr:
        """Transpose of the inner edges; for a symmetric graph that is the same pattern."""
        return self.inner if self.symmetric else kernels.transpose(self.inner)[0]

    @cached_property
    def halo_out(self) -> Csr:
        """Transpose of the halo edges: h × n."""
        return kernels.transpose(self.halo_edges)[0]

    @cached_property
    def full(self) -> Csr:
        """Inner and halo edges in one pattern, n × (n + h); halo columns come after inner ones."""
        n = self.num_inner
        rows = torch.cat([self.inner.edge_rows, self.halo_edges.edge_rows])
        cols = torch.cat([self.inner.indices, self.halo_edges.indices + n])
        indptr = self.inner.indptr + self.halo_edges.indptr
        return Csr(indptr, cols[torch.argsort(rows, stable=True)], n + self.num_halo)

    @property
    def _full_order(self) -> Tensor:
        return torch.argsort(torch.cat([self.inner.edge_rows, self.halo_edges.edge_rows]), stable=True)

    @cached_property
    def attention_pattern(self) -> tuple[Csr, tuple[Csr, Tensor]]:
        """`full` with a self loop in front of every row, and its transpose."""
        n, full = self.num_inner, self.full
        indptr = full.indptr + torch.arange(n + 1)
        cols = torch.empty(full.num_edges + n, dtype=torch.int32)
        own = torch.zeros(len(cols), dtype=torch.bool)
        own[indptr[:-1]] = True
        cols[own], cols[~own] = torch.arange(n, dtype=torch.int32), full.indices
        pattern = Csr(indptr, cols, full.num_cols)
        return pattern, kernels.transpose(pattern)

    # Helpers

    def halo_slices(self, rows: Tensor) -> list[Tensor]:
        """The rows of a halo block, split by owner."""
        return [rows[self.halo_ptr[q] : self.halo_ptr[q + 1]] for q in range(self.transport.size)]

    def buffer(self, name: str, site: int, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
        """Memory for the messages of a site, kept from step to step."""
        key = (name, site, shape, dtype)
        if key not in self._buffers:
            self._buffers[key] = torch.empty(shape, dtype=dtype)
        return self._buffers[key]

    def where(self, site: int, direction: str, kind: str) -> Where:
        return Where(site, direction, self.step, kind)

    def _next_site(self) -> int:
        self._sites += 1
        return self._sites - 1

    def _next_stream(self) -> int:
        self._dropouts += 1
        return stream(self.seed, self.step, self._dropouts)

    def _once(self, what: str, x: Tensor, make) -> Tensor:
        if not self.is_fixed(x):
            return make()
        if what not in self._fixed_results:
            self._fixed_results[what] = make()
        return self._fixed_results[what]

    def _check_rows(self, x: Tensor) -> None:
        if x.dim() != 2 or len(x) != self.num_inner:
            raise InputError(
                f"rows of shape {tuple(x.shape)} were given to a graph with {self.num_inner} inner nodes: "
                f"pass this worker's inner rows, [{self.num_inner}, features]"
            )

    def __repr__(self) -> str:
        who = f"worker {self.transport.rank} of {self.transport.size}"
        edges = self.inner.num_edges + self.halo_edges.num_edges
        return f"LocalGraph({who}: {self.num_inner} inner, {self.num_halo} halo nodes, {edges} edges)"


def as_tensor(array: np.ndarray) -> Tensor:
    """The array's memory as a tensor. Memory-mapped files are read-only, and nothing here writes to them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(array))


def stream(seed: int, step: int, call: int) -> int:
    """A 64-bit key for the random draws of one call of one step."""
    key = 0
    for number in (seed, step, call):
        key = ((key ^ (number & (2**64 - 1))) * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03) & (2**64 - 1)
        key ^= key >> 29
    return key
