"""LocalGraph, the graph as a worker's model sees it."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Transport
from isthmus.errors import InputError
from isthmus.kernels import HostRows, Scores, SparseMatrix
from isthmus.local import exchange, replication
from isthmus.local.all_nodes import AllNodes
from isthmus.local.attention import attend
from isthmus.local.checks import check_numbers, check_only, check_rows
from isthmus.local.dropout import Before, Dropped, Late, dropout, dropout_both
from isthmus.local.edge_data import EdgeData
from isthmus.local.host_features import aggregate_host, host_halo
from isthmus.local.input_rows import drop_halo, dropout_host, dropout_sparse, fixed_halo, kept_halo, sparse_halo
from isthmus.local.order import transforms_first
from isthmus.local.policy import Policy
from isthmus.local.product import both_products, whole_product
from isthmus.local.rows import AsMade, gather_rows
from isthmus.local.runtime import Runtime
from isthmus.local.straight import straight
from isthmus.local.watched_rows import remember, watch_rows
from isthmus.partition.part import Part
from isthmus.shard import Shard, VertexShard
from isthmus.shard.load import as_tensor, shard_of
from isthmus.shard.weighted import weigh

Rows = Tensor | SparseMatrix | HostRows
Blocks = Rows | tuple[Tensor | HostRows, ...]
Same = TypeVar("Same", Tensor, SparseMatrix, HostRows, Rows)


@straight("aggregate", "propagate", "halo", "pair", "attend", "linear", "dropout")
class LocalGraph(AllNodes, EdgeData):
    """One worker's part of the graph: its inner nodes, the halo nodes they read, and the links to the owners.

    A model calls `aggregate`, `propagate` or `halo`; the k-th such call of a forward pass is site k. `AllNodes` has the
    questions about all workers' rows together: `sum`, `mean`, `max`. Custom models may also read ``nodes`` (original
    ids), ``degree``, ``edge_index`` and ``edge_attr``. While a model trains, the policy may draw another graph for each
    step: read `edge_index` anew in every forward pass.

    Shapes: n inner nodes, h halo nodes, F features. The engine drives ``runtime``.
    """

    def __init__(self, runtime: Runtime, node_type: Tensor | None = None):
        self.runtime, self.node_type = runtime, node_type
        self.convolving = False  # whether a PyG convolution runs

    @classmethod
    def from_part(
        cls, part: Part, transport: Transport, symmetric: bool, policy: Policy | None = None, **options
    ) -> LocalGraph:
        """Return the graph of a part on disk, on the device of the transport. `Runtime` describes the options."""
        whole: Shard = shard_of(part, transport.size, symmetric, options.get("dtype", torch.float32), transport.device)
        if part.mirror_indptr is not None:
            whole = VertexShard.of(part, whole)
        if options.pop("weighted", False):
            weigh(whole, transport)
        node_type = None if part.node_type is None else as_tensor(part.node_type, transport.device)
        return cls(Runtime(whole, transport, policy or Policy(), **options), node_type)

    # Aggregations

    def aggregate(
        self, x: Tensor, norm: str = "gcn", only: Tensor | None = None, *, through: Tensor | None = None
    ) -> Tensor:
        r"""Return aggregated rows of the inner nodes, halo neighbours included, [n, F].

        .. math:: gcn: \sum_{j \in N(i) \cup i} \frac{x_j}{\sqrt{(d_i + 1)(d_j + 1)}}, \quad
                  mean: \frac{1}{d_i} \sum_{j \in N(i)} x_j, \quad sum: \sum_{j \in N(i)} x_j

        with d the degrees in the whole graph. ``x``: this worker's inner rows, [n, F]. ``only`` (int64 [m], each once,
        e.g. `read`): compute these rows alone, [m, F]. ``through`` [out, F]: the weight that will multiply the result,
        for samplers that choose by the norms of rows.
        """
        check_numbers(x, self.num_rows)
        if only is not None and only is not self.read:
            check_only(only, self.num_rows)
        return self._aggregate(x, norm, only, through)

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
        """Return P X Wᵀ (+ X W_rootᵀ) (+ b) in the cheaper of its orders, [n, out]; or the rows ``only`` of it.

        Input rows that never change are aggregated once per run, so for them P X comes first. Elsewhere the narrow side
        is exchanged; at equal width the transform comes first, because then P X need not be kept for the gradient. For
        sparse rows the transform comes first too: P X is several times fuller than X. Shapes: x [n, in], weight and
        root [out, in], bias [out]. In bf16 training the result is in the weight's dtype, or in bf16 with ``as_made``.
        """
        last, linear = (partial(self.linear, bias=bias, as_made=made) for made in (as_made, bool(as_made)))
        if isinstance(x, SparseMatrix):
            out = self._aggregate_sparse(x, weight, norm, only)
            own = None if root is None else gather_rows(linear(x, root), only)
        elif isinstance(x, HostRows) and x.drop is None:
            every = aggregate_host(self.runtime, x, norm).take(only)
            both = x.take(only), every
            return last(every, weight) if root is None else last(both, torch.cat([root, weight], dim=1))
        elif isinstance(x, HostRows):
            out = self._aggregate(self.linear(x, weight, as_made=True), norm, only)
            own = None if root is None else linear(x.take(only), root)
        elif transforms_first(self.runtime, x, len(weight)):
            out = self._aggregate_narrow(x, weight, norm, only)
            own = None if root is None else linear(self._own(x, only), root)
        elif root is None:
            return last(self.aggregate(x, norm, only, through=weight), weight)
        else:
            return last(self._both(x, norm, only, weight), torch.cat([root, weight], dim=1))
        out = out if as_made or own is not None else out.to(weight.dtype)
        own = own if own is not None or bias is None else bias.to(out.dtype)
        out = out if own is None else out + own
        return torch.relu(out) if as_made == "relu" else out

    def halo(self, x: Rows, weight: Tensor | None = None) -> Tensor:
        """Return inner rows, then the halo rows fetched from their owners, [n + h, F], as `edge_index` numbers them.

        With ``weight`` [out, F], return each row times Wᵀ, [n + h, out], multiplied before or after the rows cross.
        """
        if isinstance(x, SparseMatrix):
            assert weight is not None, "sparse rows are read through a weight"
            halo, picked = self.linear(sparse_halo(self.runtime, x), weight), self.runtime.drawn.picked
            return torch.cat([self.linear(x, weight), halo if picked is None else halo[picked]])
        if isinstance(x, HostRows):
            assert weight is not None, "rows of the host are read through a weight"
            fixed = x.drop is None
            return self.linear(host_halo(self.runtime, x), weight) if fixed else self._halo(self.linear(x, weight))
        if weight is None:
            return self._halo(x)
        if self._late(x) is not None or self.runtime.is_fixed(x):  # readers apply its dropout, or it crosses only once
            return self.linear(self._halo(x), weight)
        return self._halo(self.linear(x, weight))

    def pair(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return (`halo` rows, rows of the targets), as PyG's bipartite convolutions take them with `edge_index`."""
        return self.halo(x), self._own(x)

    def attend(self, target: Tensor, source: Tensor, x: Tensor, slope: float = 0.2) -> Tensor:
        """Return softmax attention over N(i) ∪ i: target [n, H]; source, x [n + h, H(·D)] → [n, H·D]."""
        if self.runtime.whole.replicated:
            return replication.attend(self.runtime, Scores(target, source, slope), x, self.runtime.next_site())
        return attend(self.runtime.drawn, target, source, x, slope)

    # Row by row

    def linear(self, blocks: Blocks, weight: Tensor, bias: Tensor | None = None, *, as_made: AsMade = False) -> Tensor:
        """Return [X_1 | X_2 | …] Wᵀ (+ b), [n, out], for rows X or blocks of them side by side, X_k [n, in_k].

        W is [out, Σ in_k]. With the policy's precision bf16, training computes this in bf16. The result is in the
        weight's dtype, or with ``as_made`` in the dtype it was computed in: everything here accepts bf16 rows, torch's
        modules do not. ``as_made="relu"``, here and in `propagate`: its positive part.
        """
        out = self.runtime.linear(blocks, weight, bias, as_made == "relu")
        return out if as_made else out.to(weight.dtype)

    def dropout(self, x: Same, p: float, *, relu: bool = False) -> Same:
        """Return x after dropout (after relu, if asked) whose mask is a function of (seed, step, call, node, feature).

        The mask is therefore the same for any number of workers, and the same at the owner and at every reader of a
        row. Where readers may use rows of another step, rows are sent before dropout, and readers apply it. Outside
        training nothing is dropped.
        """
        run = self.runtime
        if not 0 <= p < 1:
            raise InputError(f"dropout must be at least 0 and below 1, not {p}")
        p = p if run.training else 0.0
        if not isinstance(x, Tensor):
            assert not relu, "features are dropped out as they are"
            return dropout_sparse(run, x, p) if isinstance(x, SparseMatrix) else dropout_host(run, x, p)
        check_numbers(x, self.num_rows)
        mask = run.next_mask(p)
        cached = run.cached is not None and run.is_fixed(x)
        if not (p and (run.masks_late or cached)):
            return remember(run, dropout(x, self.nodes, mask.stream(run.step), p, relu), Before(x, mask, relu))
        after, before = dropout_both(x, self.nodes, mask.stream(run.step), p, relu)
        run.dropped[after] = Dropped(before, mask)
        return after

    # Nodes and edges

    @property
    def nodes(self) -> Tensor:
        """The original ids of the inner nodes, int64 [n]; in a mini-batch, of the nodes that are read next."""
        return self.runtime.nodes

    @property
    def halo_nodes(self) -> Tensor:
        """The original ids of the halo nodes, int64 [h]."""
        return self.runtime.drawn.halo_nodes

    @property
    def degree(self) -> Tensor:
        """The degrees of `nodes` in the whole graph, [n]."""
        return self.runtime.degree

    @property
    def num_rows(self) -> int:
        """The number of rows of every tensor that a model computes here; in a mini-batch it falls with every layer."""
        return self.runtime.num_rows

    @property
    def num_inner(self) -> int:
        """The number of nodes that this worker owns."""
        return self.runtime.whole.num_owned

    @property
    def num_halo(self) -> int:
        return self.runtime.drawn.num_halo

    @property
    def read(self) -> Tensor | None:
        """The inner rows, int64 [m], whose results are read after this pass; None: all of them, or this saving is off.

        Where a model computes these rows alone, only rows next to them cross; every worker's model does so, or none.
        """
        return self.runtime.needed.rows

    def sources(self, thinned: bool = True) -> Tensor | None:
        """Return the inner rows (int64) from which one layer computes the rows `read` of all workers; None: nearly all.

        ``thinned``: by an aggregation of those rows alone (``only=graph.read``), for which a recipe may draw a share of
        the inner edges. A layer that reads all edges needs all their sources.
        """
        return self.runtime.needed.sources(self.runtime.drawn, thinned)

    def __repr__(self) -> str:
        at, has = self.runtime.transport, self.runtime.whole
        about = f"{has.num_inner} inner, {has.num_halo} halo nodes, {has.num_edges} edges"
        return f"LocalGraph(worker {at.rank} of {at.size}: {about})"

    # The path that rows take

    def _own(self, x: Tensor, only: Tensor | None = None) -> Tensor:
        """Return the rows of x whose neighbours were just aggregated: ``only`` those, or all; in a batch, the first."""
        return x[: self.num_rows] if only is None and len(x) != self.num_rows else gather_rows(x, only)

    def _both(self, x: Tensor, norm: str, only: Tensor | None, through: Tensor) -> tuple[Tensor, Tensor]:
        """Return own rows and P X."""
        layer, run = self.runtime.next_layer, self.runtime
        if only is None and layer is not None and layer.alone:
            check_numbers(x, self.num_rows)
            run.next_site()
            dtype = (run.half if run.training else None) or x.dtype  # of the product that it goes into
            return both_products(x, layer, layer.norm(norm, kernels.sum_dtype(x.dtype)), run.as_rows, dtype)
        neighbours = self.aggregate(x, norm, only, through=through)
        return self._own(x, only), neighbours

    def _late(self, x: Tensor) -> Dropped | None:
        """Return how x was dropped out, if it is a result of `dropout` whose readers apply the dropout themselves."""
        return self.runtime.dropped.get(x)

    def _aggregate(
        self,
        x: Tensor,
        norm: str,
        only: Tensor | None,
        through: Tensor | None = None,
        made_of: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Return P X by the path that suits its rows. ``made_of`` = (y [n, G], W [F, G]) says that x is y Wᵀ."""
        run = self.runtime
        if not run.needed.builds_subset(only, run.drawn):
            return gather_rows(self._aggregate(x, norm, None, through, made_of), only)
        site = run.next_site()
        if run.drawn.alone:
            return exchange.aggregate_alone(run, x, norm)
        if run.is_fixed(x) and run.cached is None:
            make = partial(exchange.aggregate, run, x, norm, site, exact=True)
            return gather_rows(run.fixed.lent(f"aggregate {norm}", make), only)
        if not run.training:
            return exchange.aggregate(run, x, norm, site, exact=True, only=only)
        watch_rows(run, site, x, only, made_of)
        narrowed = None if made_of is None else self._late(made_of[0])
        if made_of is not None and narrowed is not None:
            run.schedule.record(narrowed.before, made_of[1], norm)
            return exchange.aggregate(run, x, norm, site, False, Late(*narrowed, made_of[1]), only)
        late = self._late(x)
        source = x if late is None else late.before
        run.schedule.record(source, through, norm)
        if run.is_fixed(source):
            scale = run.drawn.norm(norm, kernels.sum_dtype(x.dtype))
            every = whole_product(x, fixed_halo(run, source, site, late), run.drawn, scale, run.as_rows)
            return gather_rows(every, only)
        return exchange.aggregate(run, x, norm, site, False, None if late is None else Late(*late), only)

    def _aggregate_narrow(self, x: Tensor, weight: Tensor, norm: str, only: Tensor | None) -> Tensor:
        """Return P (X Wᵀ), [n, out]; or the rows ``only`` of it. In bf16 training it is in bf16.

        Where few rows are needed, only rows that others read are transformed first: (P_inner X) Wᵀ + P_halo (X_halo
        Wᵀ).
        """
        late, run = self._late(x), self.runtime
        check_rows(x, self.num_rows)
        if late is None or only is None or 2 * len(only) > self.num_rows:
            return self._aggregate(self.linear(x, weight, as_made=True), norm, only, made_of=(x, weight))
        site = run.next_site()
        run.schedule.record(late.before, weight, norm)
        watch_rows(run, site, x, only, (x, weight))
        return exchange.aggregate_narrow(run, x, norm, site, Late(*late, weight), only)

    def _aggregate_sparse(self, x: SparseMatrix, weight: Tensor, norm: str, only: Tensor | None) -> Tensor:
        """Return P [X; X_halo] Wᵀ, [n, out], for sparse features x [n, F], as they were fixed or after dropout.

        It runs over the whole graph even where a step draws another, since all halo rows are here anyway.
        """
        run, shard = self.runtime, self.runtime.whole
        if not run.needed.builds_subset(only, run.drawn):
            return gather_rows(self._aggregate_sparse(x, weight, norm, None), only)
        if only is not None:
            shard = run.needed.towards(only, shard, shard.norm(norm, weight.dtype).add_self, all_halo=True)
        own, others = (self.linear(rows, weight, as_made=True) for rows in (x, sparse_halo(self.runtime, x)))
        scale = shard.norm(norm, kernels.sum_dtype(own.dtype))
        return whole_product(own, others, shard, scale, run.as_rows)

    def _halo(self, x: Tensor) -> Tensor:
        check_rows(x, self.num_rows)
        run = self.runtime
        if run.whole.replicated:
            return x  # replicas already have the rows that edges here begin with
        site = run.next_site()
        if run.drawn.alone:
            return x
        if run.is_fixed(x) and run.cached is None:
            if run.drawn.picked is None:
                return run.fixed.lent("halo", partial(exchange.with_halo, run, x, site, exact=True))
            return torch.cat([x, kept_halo(run, site)[self.num_inner + run.drawn.picked]])
        if not run.training:
            return exchange.with_halo(run, x, site, exact=True)
        late = self._late(x)
        run.schedule.record(source := x if late is None else late.before, None, "sum")
        if run.is_fixed(source):
            return torch.cat([x, fixed_halo(run, source, site, late)])
        watch_rows(run, site, x, None)
        if late is None:
            return exchange.with_halo(run, x, site, exact=False)
        return torch.cat([x, drop_halo(run, exchange.halo_rows(run, source, site), late)])
