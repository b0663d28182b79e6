"""LocalGraph: what a worker's model sees of the graph."""

from __future__ import annotations

import warnings
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from isthmus.comm import Links, Transport
from isthmus.errors import InputError
from isthmus.features.fixed import FixedRows
from isthmus.features.sparse import fetch_sparse
from isthmus.kernels import Csr, SparseMatrix
from isthmus.local import exchange, products
from isthmus.local.cached_features import Features
from isthmus.local.channels import Channels
from isthmus.local.checks import check_forward, check_numbers, check_only, check_rows
from isthmus.local.needed import Needed
from isthmus.local.policy import Policy
from isthmus.local.rows import gather_rows
from isthmus.local.savings import Savings
from isthmus.partition.book import Part
from isthmus.sample import Schedule
from isthmus.shard import DrawContext, Shard

Rows = TypeVar("Rows", bound=Tensor | SparseMatrix)


class Dropped(NamedTuple):
    """Rows before dropout, and how to do the same to rows of halo nodes."""

    before: Tensor
    mask: exchange.Mask


class LocalGraph:
    """One part of the graph under an edge-cut: its inner nodes, the halo nodes they read, and the links to the owners.

    A model calls `aggregate` or `halo`; the k-th such call of a forward pass is site k. Everything else here is
    for models of one's own: ``nodes`` (original ids), ``degree``, ``edge_index``, ``edge_attr``. While a model trains,
    the policy may draw another graph for each step: read `edge_index` anew in every forward pass.

    Shapes: n inner nodes, h halo nodes, F features.
    """

    def __init__(
        self,
        whole: Shard,
        transport: Transport,
        *,
        policy: Policy | None = None,
        dtype: torch.dtype = torch.float32,
        rows_dtype: torch.dtype | None = None,
        seed: int = 0,
        node_type: Tensor | None = None,
    ):
        self.whole, self.transport, self.policy = whole, transport, policy or Policy()
        self.rows_dtype, self.seed, self.node_type = rows_dtype, seed, node_type
        draws = seed if self.policy.seed is None else self.policy.seed
        self.dtype = dtype
        self.channels = Channels(transport, self.policy, whole, draws)
        self.schedule = Schedule(
            self.policy.sampler, DrawContext(whole, transport, draws, dtype), self.policy.forward.delay
        )
        self.features = None
        if self.policy.cache is not None:
            self.features = Features(self.policy.cache, self.channels, self.schedule, draws)
        self._bf16 = products.in_bf16(self.policy.precision, dtype)
        self._dropped = WeakTensorKeyDictionary()  # of this pass, by what came out of dropout
        self._dropped_sparse: tuple[SparseMatrix, int, float] | None = None  # the last ones, and how
        self._edges: Shard | None = None
        self.edge_attr_read = False  # whether a model has asked for them
        self.kept = FixedRows()
        self.reading = Needed(whole, self.schedule, self.policy)
        self.begin(0, training=False)

    @classmethod
    def from_part(cls, part: Part, transport: Transport, symmetric: bool, **options) -> LocalGraph:
        """The graph of a part on disk; memory-mapped structure stays memory-mapped."""
        n, h, ends = len(part.nodes), len(part.halo_nodes), part.send_ptr
        attributes, dtype = None, options.get("dtype", torch.float32)
        if part.inner_edge_attr is not None and part.halo_edge_attr is not None:
            inner, halo = as_tensor(part.inner_edge_attr), as_tensor(part.halo_edge_attr)
            attributes = (inner.to(dtype), halo.to(dtype)) if inner.is_floating_point() else (inner, halo)
        send_rows = [as_tensor(part.send_rows[ends[q] : ends[q + 1]]) for q in range(transport.size)]
        whole = Shard(
            inner=Csr(as_tensor(part.inner_indptr), as_tensor(part.inner_indices), n),
            halo=Csr(as_tensor(part.halo_indptr), as_tensor(part.halo_indices), h),
            links=Links(send_rows, np.diff(part.halo_ptr).tolist()),
            nodes=as_tensor(part.nodes),
            halo_nodes=as_tensor(part.halo_nodes),
            degree=as_tensor(part.degree),
            halo_degree=as_tensor(part.halo_degree),
            symmetric=symmetric,
            edge_attr=attributes,
        )
        node_type = None if part.node_type is None else as_tensor(part.node_type)
        return cls(whole, transport, node_type=node_type, **options)

    # What a model calls

    def aggregate(
        self,
        x: Tensor,
        norm: str = "gcn",
        through: Tensor | None = None,
        of: tuple[Tensor, Tensor] | None = None,
        only: Tensor | None = None,
    ) -> Tensor:
        r"""Aggregated rows of the inner nodes, halo neighbours included, [n, F].

        .. math:: gcn: \sum_{j \in N(i) \cup i} \frac{x_j}{\sqrt{(d_i + 1)(d_j + 1)}}, \quad
                  mean: \frac{1}{d_i} \sum_{j \in N(i)} x_j, \quad sum: \sum_{j \in N(i)} x_j

        with d the degrees in the whole graph. ``x``: this worker's inner rows, [n, F]. ``through`` [out, F] is what the
        result will be multiplied by: samplers that go by the size of rows take it into account. ``of`` = (y [n, G], W
        [F, G]) says that x is y Wᵀ: if y was dropped out, others may have to read it with another mask. ``only``
        (int64 [m], each once, e.g. `read`): make these rows alone, [m, F].
        """
        check_numbers(x, self.num_inner)
        if only is not None and only is not self.read:
            check_only(only, self.num_inner)
        if not self.reading.parts(only, self.edges):
            return gather_rows(self.aggregate(x, norm, through, of), only)
        site = self._next_site()
        if self.is_fixed(x) and self.features is None:
            make = partial(exchange.aggregate, self, x, norm, site, exact=True)
            return gather_rows(self.kept.lent(f"aggregate {norm}", make), only)
        if not self.training:
            return exchange.aggregate(self, x, norm, site, exact=True, only=only)
        narrowed = None if of is None else self._late(of[0])
        if of is not None and narrowed is not None:
            self.schedule.look(narrowed.before, of[1], norm)
            sent = exchange.Late(narrowed.before, narrowed.mask, of[1])
            return exchange.aggregate(self, x, norm, site, False, sent, only)
        late = self._late(x)
        source = x if late is None else late.before
        self.schedule.look(source, through, norm)
        if self.is_fixed(source):
            every = exchange.combine(self.edges, x, self._fixed_rows(source, site, late), norm, self.as_rows)
            return gather_rows(every, only)
        raw = None if late is None else exchange.Late(source, late.mask)
        return exchange.aggregate(self, x, norm, site, False, raw, only)

    def aggregate_narrow(self, x: Tensor, weight: Tensor, norm: str, only: Tensor | None = None) -> Tensor:
        """P (X Wᵀ), [n, out], for rows x [n, in] and weight [out, in]; or the rows ``only`` of it.

        Where few rows are asked for, only what others read is transformed first: (P_inner X) Wᵀ + P_halo (X_halo Wᵀ).
        """
        late = self._late(x)
        if late is None or only is None or 2 * len(only) > self.num_inner:
            return self.aggregate(self.linear(x, weight, as_made=True), norm, of=(x, weight), only=only)
        check_rows(x, self.num_inner)
        site = self._next_site()
        self.schedule.look(late.before, weight, norm)
        edges = self.reading.towards(only, self.edges, self.whole.norm(norm, x.dtype).add_self)
        own = self.linear(exchange.aggregate_inner(edges, x, norm, self.as_rows), weight)
        sent = exchange.Late(late.before, late.mask, weight)
        return own + exchange.aggregate_halo(self, edges, x, norm, site, sent, self.reading.is_near(only))

    def halo(self, x: Tensor) -> Tensor:
        """Inner rows, then the halo rows fetched from their owners, [n + h, F]; rows as `edge_index` numbers them."""
        check_rows(x, self.num_inner)
        site = self._next_site()
        if self.is_fixed(x) and self.features is None:
            picked = self.edges.picked
            if picked is None:
                return self.kept.lent("halo", partial(exchange.halo, self, x, site, exact=True))
            return torch.cat([x, self._fixed_halo(site)[self.num_inner + picked]])
        if not self.training:
            return exchange.halo(self, x, site, exact=True)
        late = self._late(x)
        source = x if late is None else late.before
        self.schedule.look(source, None, "sum")
        if self.is_fixed(source):
            return torch.cat([x, self._fixed_rows(source, site, late)])
        if late is None:
            return exchange.halo(self, x, site, exact=False)
        return torch.cat([x, self._drop_halo(exchange.fetch(self, source, site), late)])

    def aggregate_sparse(self, x: SparseMatrix, weight: Tensor, norm: str, only: Tensor | None = None) -> Tensor:
        """P [X; X_halo] Wᵀ, [n, out], of sparse features x [n, F] (as fixed, or dropped out) and weight [out, F].

        Over the whole graph, also where a step draws another: rows that are here anyway need not be left out.
        """
        edges = self.whole
        if not self.reading.parts(only, self.edges):
            return gather_rows(self.aggregate_sparse(x, weight, norm), only)
        if only is not None:
            edges = self.reading.towards(only, edges, edges.norm(norm, weight.dtype).add_self, all_halo=True)
        halo = self._kept_sparse(x)
        own, others = (self.linear(rows, weight, as_made=True) for rows in (x, halo))
        return exchange.combine(edges, own, others, norm, self.as_rows)

    def halo_sparse(self, x: SparseMatrix, weight: Tensor) -> Tensor:
        """[X; X_halo] Wᵀ of sparse features, [n + h, out]; rows as `edge_index` numbers them."""
        halo, picked = self.linear(self._kept_sparse(x), weight), self.edges.picked
        return torch.cat([self.linear(x, weight), halo if picked is None else halo[picked]])

    def linear(
        self,
        blocks: Tensor | SparseMatrix | tuple[Tensor, ...],
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        as_made: bool = False,
    ) -> Tensor:
        """[X_1 | X_2 | …] Wᵀ (+ b), [n, out], of rows X or blocks of them side by side, X_k [n, in_k]; W [out, Σ in_k].

        With the policy's precision bf16 it is made so while a model trains. The result is in the weight's dtype, or
        with ``as_made`` in bf16 then: for what takes such rows, as everything here does, and torch's modules do not.
        """
        bf16 = self.training and self._bf16
        if bf16 and isinstance(blocks, tuple):
            blocks = self._side_by_side(blocks)
        out = products.linear(blocks, weight, bias, bf16)
        return out if as_made else out.to(weight.dtype)

    def attend(self, target: Tensor, source: Tensor, x: Tensor, slope: float = 0.2) -> Tensor:
        """Softmax attention over N(i) ∪ i (`kernels.attention`): target [n, H]; source, x [n + h, H(·D)] → [n, H·D]."""
        return exchange.attend(self.edges, target, source, x, slope)

    def dropout(self, x: Tensor, p: float, *, relu: bool = False) -> Tensor:
        """Dropout (after relu, if asked) whose mask is a function of (seed, step, call, node, feature).

        It is therefore the same for any number of workers, and the same at the owner and at every reader of a row.
        Where readers may use rows of another step, rows are sent before they are dropped out, and readers do it.
        Outside training nothing is dropped.
        """
        check_numbers(x, self.num_inner)
        if not 0 <= p < 1:
            raise InputError(f"dropout must be at least 0 and below 1, not {p}")
        p = p if self.training else 0.0
        mask = self._next_mask(p)
        cached = self.features is not None and self.is_fixed(x)
        if not (p and (self.policy.forward.mixes_steps or cached)):
            return exchange.dropout(x, self.nodes, mask.stream(self.step), p, relu)
        after, before = exchange.dropout_both(x, self.nodes, mask.stream(self.step), p, relu)
        self._dropped[after] = Dropped(before, mask)
        return after

    def may_narrow(self, x: Tensor, width: int) -> bool:
        """Whether what is made of x, ``width`` wide, may be exchanged instead of x.

        Of rows that were dropped out it may where others read them at a known later step: the owner makes them with
        that step's mask. Rows that others keep longer they must drop out themselves, hence read as they were.
        """
        late = self._late(x)
        if late is None:
            return not self.is_fixed(x)
        return self.policy.forward.delay > 0 and width < x.shape[1] and not self.is_fixed(late.before)

    def wants_as_is(self, x: Tensor) -> bool:
        """Whether x is exchanged before anything is made of it: to be dropped out by readers, or only once."""
        return self._late(x) is not None or self.is_fixed(x)

    def dropout_sparse(self, x: SparseMatrix, p: float) -> SparseMatrix:
        """The same for sparse feature rows."""
        stream = self._next_mask(p).stream(self.step)
        dropped = x.dropout(self.nodes, stream, p)
        self._dropped_sparse = dropped, stream, p
        return dropped

    @property
    def read(self) -> Tensor | None:
        """The inner rows, int64 [m], whose results are read after this pass; None: all, or others are not saved.

        At a site where a model makes these alone, only rows next to them cross; every worker's model does, or none.
        """
        return self.reading.rows

    def sources(self, thinned: bool = True) -> Tensor | None:
        """The inner rows, int64, that the rows `read` are made of in one layer, here or elsewhere; None: nearly all.

        ``thinned``: by an aggregation of them alone (``only=graph.read``), for which a recipe may draw a share of the
        inner edges. A layer that reads all edges needs all their sources.
        """
        return self.reading.sources(self.edges, thinned)

    @property
    def edge_index(self) -> Tensor:
        """Edges as PyG writes them, int64 [2, E]: sources number `halo(x)`, targets number the inner rows."""
        return self.edges.edge_index

    @property
    def edge_attr(self) -> Tensor | None:
        """Attributes in the order of `edge_index`, or None."""
        self.edge_attr_read = True
        return self.edges.edge_attr

    @property
    def nodes(self) -> Tensor:
        """Original ids of the inner nodes, int64 [n]."""
        return self.whole.nodes

    @property
    def halo_nodes(self) -> Tensor:
        """Original ids of the halo nodes, int64 [h]."""
        return self.edges.halo_nodes

    @property
    def degree(self) -> Tensor:
        """Degrees of the inner nodes in the whole graph, [n]."""
        return self.whole.degree

    @property
    def num_inner(self) -> int:
        return self.whole.num_inner

    @property
    def num_halo(self) -> int:
        return self.edges.num_halo

    # What the engine calls

    def begin(self, step: int, training: bool = True, probe: bool = False, declared: bool = False) -> None:
        """A forward pass begins: sites are counted from 0 again. Outside training the exchange is exact.

        With ``probe``, the rows that the policy gives are compared with fresh ones (`Wires.errors`). ``declared``: no
        results are read but those that `reads_only` named.
        """
        self.reading.begin(step, declared)
        self.step, self.training, self._sites, self._dropouts = step, training, 0, 0
        self._dropped.clear()
        self._edges = None if training else self.whole
        self.channels.begin(step, probe and training)

    @property
    def edges(self) -> Shard:
        """The graph of this pass; that of a training step is drawn when the model first reads it, on all workers."""
        return self._drawn()

    def fix(self, x: Rows) -> Rows:
        """Declares rows that never change (the input features); returns them."""
        self.kept = FixedRows(x)
        return x

    def reads_only(self, rows: Tensor, share: float) -> None:
        """Declares the rows (int64) whose results are read when a model trains, a share of all workers' rows.

        Every worker does so at the same time, and once.
        """
        if self.savings.read_rows:
            self.channels.near = self.reading.declare(rows, share)

    def is_fixed(self, x: Tensor) -> bool:
        """Whether x never changes, so that what is made of it alone can be kept."""
        return self.kept.is_of(x) and (self.savings.aggregate_once or self.features is not None)

    @property
    def keeps_sparse(self) -> bool:
        """Whether sparse features may stay so: those of the halo are kept, none are exchanged at every step."""
        return self.savings.aggregate_once and self.savings.narrow_side and self.features is None

    @property
    def savings(self) -> Savings:
        return self.policy.savings

    def state(self) -> dict[str, Tensor]:
        """All that is carried from step to step besides the weights, by name."""
        pieces = {"drawing": self.schedule.state(), "wires": self.channels.state()}
        if self.features is not None:
            pieces["features"] = self.features.state()
        return {f"{piece}.{name}": tensor for piece, state in pieces.items() for name, tensor in state.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        pieces: dict[str, dict[str, Tensor]] = {"drawing": {}, "wires": {}, "features": {}}
        for name, tensor in state.items():
            piece, rest = name.split(".", 1)
            pieces[piece][rest] = tensor
        self.schedule.restore(pieces["drawing"])
        self.channels.restore(pieces["wires"], self.reading.links_at)
        if self.features is not None:
            self.features.restore(pieces["features"])

    def drain(self) -> None:
        """Waits for every transfer and every draw that is under way."""
        self.channels.drain()
        self.schedule.drain()

    def close(self) -> None:
        """Leaves nothing running; for a run that ends in the middle of a step, where nobody can be waited for."""
        self.schedule.close()

    def as_rows(self, x: Tensor) -> Tensor:
        """Rows in the form in which they are read: as they are, or in bf16."""
        if self.rows_dtype is None and self._bf16 and self.training and x is not self.kept.rows:
            return x.bfloat16()  # but not input features: what is made of them is kept for evaluations too
        return self.as_sent(x)

    def as_sent(self, x: Tensor) -> Tensor:
        """Rows in the form in which they leave, before they are coded."""
        return x if self.rows_dtype is None else x.to(self.rows_dtype)

    def _late(self, x: Tensor) -> Dropped | None:
        """How x was dropped out, if it is a result of `dropout` and others are to read it otherwise."""
        return self._dropped.get(x)

    def _fixed_rows(self, source: Tensor, site: int, late: Dropped | None) -> Tensor:
        """Rows of the halo that never change, as this step's graph reads them: from the cache, or kept here."""
        if self.features is not None:
            halo = self.features.rows(source, site, self.step)
        else:
            rows, picked = self._fixed_halo(site)[self.num_inner :], self.edges.picked
            halo = rows if picked is None else rows[picked]
        return halo if late is None else self._drop_halo(halo, late)

    def _drop_halo(self, halo: Tensor, late: Dropped) -> Tensor:
        """What `dropout` did to inner rows."""
        return exchange.dropout(halo, self.halo_nodes, late.mask.stream(self.step), late.mask.p, False)

    def _fixed_halo(self, site: int) -> Tensor:
        """The rows that never change, of inner and of all halo nodes; they cross a link once per run."""
        fixed = self.kept.rows
        assert isinstance(fixed, Tensor), "rows are declared by `fix` before they are read"
        return self.kept.once("halo", partial(exchange.halo, self, fixed, site, exact=True))

    def _side_by_side(self, blocks: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Blocks that never change are put into one, in bf16, once per run."""
        kept = self.kept.names
        names = [kept.get(id(block)) for block in blocks]
        if None in names:
            return blocks
        return (self.kept.once(f"bf16 of {names}", lambda: torch.cat([block.bfloat16() for block in blocks], dim=1)),)

    def _kept_sparse(self, x: SparseMatrix) -> SparseMatrix:
        """The features of all halo nodes, dropped out as x was; they cross a link once per run."""
        fixed, site = self.kept.rows, self._next_site()
        assert isinstance(fixed, SparseMatrix), "rows are declared by `fix` before they are read"
        fetch = partial(fetch_sparse, fixed, self.whole.links, self.transport, site, self.step)
        halo: SparseMatrix = self.kept.once("sparse halo", fetch)
        if x is fixed:
            return halo
        assert self._dropped_sparse is not None, "sparse rows are those that were fixed"
        dropped, stream, p = self._dropped_sparse
        assert x is dropped, "sparse rows are dropped out once"
        return halo.dropout(self.whole.halo_nodes, stream, p)

    def _next_site(self) -> int:
        check_forward()
        self._drawn()
        self._sites += 1
        return self._sites - 1

    def _drawn(self) -> Shard:
        if self._edges is None:
            self.schedule.begin(self.step)
            self._edges = self.schedule.at(self.step)
        return self._edges

    def _next_mask(self, p: float) -> exchange.Mask:
        check_forward()
        self._dropouts += 1
        return exchange.Mask(self.seed, self._dropouts, p)

    def __repr__(self) -> str:
        who = f"worker {self.transport.rank} of {self.transport.size}"
        edges = self.whole.inner.num_edges + self.whole.halo.num_edges
        return f"LocalGraph({who}: {self.whole.num_inner} inner, {self.whole.num_halo} halo nodes, {edges} edges)"


def as_tensor(array: np.ndarray) -> Tensor:
    """The array's memory as a tensor. Most memory-mapped files are read-only, and nothing here writes to them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(array))
