"""The exchange of an edge-cut as autograd Functions: rows come in before a layer, their gradients go back after it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from isthmus import kernels
from isthmus.comm import BACKWARD, FORWARD, Channel
from isthmus.shard import Shard

if TYPE_CHECKING:
    from isthmus.local.graph import LocalGraph


class Mask(NamedTuple):
    """The masks of one dropout of a model, those of all its steps: functions of (seed, step, call, node, feature)."""

    seed: int
    call: int
    p: float

    def stream(self, step: int) -> int:
        return kernels.stream(self.seed, step, self.call)

    def drop(self, rows: Tensor, nodes: Tensor, step: int, out: Tensor | None = None) -> Tensor:
        return kernels.dropout(rows, nodes, self.stream(step), self.p, out=out)


class Late(NamedTuple):
    """What others read instead of rows X that were dropped out: S, the rows before that, with the mask of their step.

    Readers drop them out; or, where X = D(S) Wᵀ is narrower than S, the owner sends that, with the mask of the step
    that will read it.
    """

    rows: Tensor  # [n, G]
    mask: Mask
    weight: Tensor | None = None  # [F, G]

    def dropped(self, at: Tensor, nodes: Tensor, step: int) -> Tensor:
        """D(S) of the rows at these places, of these nodes, in the weight's dtype."""
        assert self.weight is not None, "only narrow rows are made by their owner"
        return self.mask.drop(self.rows[at].to(self.weight.dtype), nodes, step)


def aggregate(
    graph: LocalGraph,
    x: Tensor,
    norm: str,
    site: int,
    exact: bool,
    late: Late | None = None,
    only: Tensor | None = None,
) -> Tensor:
    """P_inner X + P_halo X_halo, [n, F]; or the rows ``only`` of it."""
    rows, mask, weight = late or (None, None, None)
    return _Aggregate.apply(x, rows, weight, graph, norm, site, exact, mask, only)


def aggregate_inner(edges: Shard, x: Tensor, norm: str, as_rows: Callable[[Tensor], Tensor]) -> Tensor:
    """P_inner X alone, [n, F]."""
    return _Inner.apply(x, edges, edges.norm(norm, kernels.sum_dtype(x.dtype)), as_rows)


def aggregate_halo(graph: LocalGraph, edges: Shard, x: Tensor, norm: str, site: int, late: Late, near: bool) -> Tensor:
    """P_halo X_halo alone, [n, F], of rows X Wᵀ that their owners make of x [n, G] for their readers (`Late`)."""
    return _NarrowHalo.apply(late.rows, late.weight, x.detach(), graph, edges, norm, site, late.mask, near)


def halo(graph: LocalGraph, x: Tensor, site: int, exact: bool) -> Tensor:
    return _Halo.apply(x, graph, site, exact)


def fetch(graph: LocalGraph, x: Tensor, site: int) -> Tensor:
    """The halo rows alone, [h, F]."""
    return _Fetch.apply(x, graph, site)


def combine(edges: Shard, x: Tensor, halo: Tensor, norm: str, as_rows: Callable[[Tensor], Tensor]) -> Tensor:
    """P_inner X + P_halo X_halo, [n, F], from inner rows [n, F] and halo rows [h, F] that are already here."""
    return _Combine.apply(x, halo, edges, edges.norm(norm, kernels.sum_dtype(x.dtype)), as_rows)


def attend(edges: Shard, target: Tensor, source: Tensor, x: Tensor, slope: float) -> Tensor:
    return _Attend.apply(target, source, x, edges, slope)


def dropout(x: Tensor, nodes: Tensor, stream: int, p: float, relu: bool) -> Tensor:
    if p == 0:
        return torch.relu(x) if relu else x
    return (_ReluDropout if relu else _Dropout).apply(x, nodes, stream, p)


def dropout_both(x: Tensor, nodes: Tensor, stream: int, p: float, relu: bool) -> tuple[Tensor, Tensor]:
    """The rows after dropout, and before it (but after relu, if asked)."""
    return _ReluDropoutBoth.apply(x, nodes, stream, p) if relu else (_Dropout.apply(x, nodes, stream, p), x)


class _Aggregate(Function):
    """Z = P_inner X + P_halo X_halo, with halo rows as the channel gives them; the gradient takes the same way back.

    The inner half is computed while rows are under way, if that saving is taken.
    """

    @staticmethod
    def forward(ctx, x, before, weight, graph, name, site, exact, mask, only):
        edges = graph.whole if exact else graph.edges
        sums = kernels.sum_dtype(x.dtype)
        ctx.near = near = graph.reading.is_near(only)
        if only is not None:
            edges = graph.reading.towards(only, edges, edges.norm(name, sums).add_self)
        norm = edges.norm(name, sums)
        ctx.graph, ctx.edges, ctx.norm, ctx.site, ctx.exact, ctx.mask = graph, edges, norm, site, exact, mask
        ctx.narrow, ctx.late = weight is not None, before is not None
        ctx.save_for_backward(*((before, weight) if ctx.narrow else ()))
        rows, overlap = graph.as_rows(x), graph.savings.overlap
        leaving = x if graph.rows_dtype is None else rows
        if ctx.late and not ctx.narrow:
            leaving = graph.as_sent(before)
        kind = "embeddings" if x.requires_grad else "features"
        if ctx.narrow:
            channel = _post_narrow(graph, Late(before, mask, weight), site, kind, near)
        else:
            channel = _post_rows(graph, leaving, site, exact, kind, near)
        arrived = None if overlap else channel.take(graph.step)
        out = edges.aggregate_inner(rows, norm, x.dtype)
        if overlap:
            arrived = channel.take(graph.step)
        if arrived is not None:
            halo = arrived
            if ctx.late and not ctx.narrow:
                halo = graph.as_rows(mask.drop(arrived.to(x.dtype), edges.halo_nodes, graph.step))
            edges.aggregate_halo(halo, norm, out)
        if graph.channels.probing:
            fresh = graph.as_sent(leaving.to(weight.dtype)) if ctx.narrow else leaving
            graph.channels.measure(channel, fresh, edges, arrived)
        return out

    @staticmethod
    def backward(ctx, grad):
        graph, edges, norm = ctx.graph, ctx.edges, ctx.norm
        rows, channel = graph.as_rows(grad), graph.channels.channel(ctx.site, BACKWARD, ctx.exact, ctx.near)
        # What rows' owners made in their weights' dtype goes back in it, also from readers who compute in another.
        dtype = ctx.saved_tensors[1].dtype if ctx.narrow else grad.dtype
        leaving = channel.outbox(edges.num_halo, grad.shape[1], dtype)
        edges.spread_halo(rows, norm, leaving)
        own = partial(edges.spread_inner, rows, norm, grad.dtype)
        if not ctx.late:
            return _return_gradients(graph, edges, channel, leaving, own), *[None] * 8
        if not ctx.narrow:
            ctx.mask.drop(leaving, edges.halo_nodes, graph.step, out=leaving)
        inner: list[Tensor] = []

        def nothing() -> Tensor:
            """The inner half is made while gradients are under way, but it is not theirs to be added to."""
            inner.append(own())
            return torch.zeros_like(inner[0], dtype=dtype)

        home = _return_gradients(graph, edges, channel, leaving, nothing)
        if not ctx.narrow:
            return inner[0], home, *[None] * 7
        return (
            inner[0],
            *_through(graph, channel, home, Late(ctx.saved_tensors[0], ctx.mask, ctx.saved_tensors[1])),
            *[None] * 6,
        )


class _Inner(Function):
    @staticmethod
    def forward(ctx, x, edges, norm, as_rows):
        ctx.edges, ctx.norm, ctx.as_rows = edges, norm, as_rows
        return edges.aggregate_inner(as_rows(x), norm, x.dtype)

    @staticmethod
    def backward(ctx, grad):
        return ctx.edges.spread_inner(ctx.as_rows(grad), ctx.norm, grad.dtype), None, None, None


class _NarrowHalo(Function):
    """Z = P_halo Y_halo, with Y = D(S) Wᵀ made and sent by the owners; the gradient by Y goes home, and through it."""

    @staticmethod
    def forward(ctx, before, weight, after, graph, edges, name, site, mask, near):
        norm = edges.norm(name, weight.dtype)
        ctx.graph, ctx.edges, ctx.norm, ctx.site, ctx.mask, ctx.near = graph, edges, norm, site, mask, near
        ctx.save_for_backward(before, weight)
        channel = _post_narrow(graph, Late(before, mask, weight), site, "embeddings", near)
        arrived, out = channel.take(graph.step), weight.new_zeros(edges.num_inner, len(weight))
        if arrived is not None:
            edges.aggregate_halo(arrived, norm, out)
        if graph.channels.probing:
            graph.channels.measure(channel, graph.as_sent(after.to(weight.dtype) @ weight.t()), edges, arrived)
        return out

    @staticmethod
    def backward(ctx, grad):
        graph, edges = ctx.graph, ctx.edges
        before, weight = ctx.saved_tensors
        channel = graph.channels.channel(ctx.site, BACKWARD, exact=False, near=ctx.near)
        leaving = channel.outbox(edges.num_halo, grad.shape[1], grad.dtype)
        edges.spread_halo(grad, ctx.norm, leaving)
        nothing = partial(grad.new_zeros, graph.num_inner, grad.shape[1])
        home = _return_gradients(graph, edges, channel, leaving, nothing)
        return *_through(graph, channel, home, Late(before, ctx.mask, weight)), *[None] * 7


class _Halo(Function):
    """[X; X_halo]. Its gradient's halo rows go back to their owners and are added there."""

    @staticmethod
    def forward(ctx, x, graph, site, exact):
        edges = graph.whole if exact else graph.edges
        ctx.graph, ctx.edges, ctx.site, ctx.exact = graph, edges, site, exact
        rows = graph.as_sent(x)
        channel = _post_rows(graph, rows, site, exact, "embeddings" if x.requires_grad else "features")
        out = x.new_empty(edges.num_inner + edges.num_halo, x.shape[1])
        out[: edges.num_inner] = x
        arrived = channel.take(graph.step)
        out[edges.num_inner :] = 0 if arrived is None else arrived
        graph.channels.measure(channel, rows, edges, arrived)
        return out

    @staticmethod
    def backward(ctx, grad):
        n, channel = ctx.edges.num_inner, ctx.graph.channels.channel(ctx.site, BACKWARD, ctx.exact)
        grad = grad.contiguous()
        leaving = channel.outbox(len(grad) - n, grad.shape[1], grad.dtype).copy_(grad[n:])
        out = _return_gradients(ctx.graph, ctx.edges, channel, leaving, lambda: grad[:n].clone())
        return out, None, None, None


class _Fetch(Function):
    """X_halo as the channel gives it. Its gradient goes to the owners and is added there."""

    @staticmethod
    def forward(ctx, x, graph, site):
        ctx.graph, ctx.edges, ctx.site = graph, graph.edges, site
        rows = graph.as_sent(x)
        channel = _post_rows(graph, rows, site, False, "embeddings" if x.requires_grad else "features")
        arrived = channel.take(graph.step)
        graph.channels.measure(channel, rows, graph.edges, arrived)
        return x.new_zeros(graph.num_halo, x.shape[1]) if arrived is None else arrived.detach().to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        channel = ctx.graph.channels.channel(ctx.site, BACKWARD, False)
        leaving = channel.outbox(len(grad), grad.shape[1], grad.dtype).copy_(grad)
        nothing = lambda: grad.new_zeros(ctx.edges.num_inner, grad.shape[1])  # noqa: E731
        return _return_gradients(ctx.graph, ctx.edges, channel, leaving, nothing), None, None


class _Combine(Function):
    @staticmethod
    def forward(ctx, x, halo, edges, norm, as_rows):
        ctx.edges, ctx.norm, ctx.as_rows = edges, norm, as_rows
        out = edges.aggregate_inner(as_rows(x), norm, x.dtype)
        edges.aggregate_halo(as_rows(halo), norm, out)
        return out

    @staticmethod
    def backward(ctx, grad):
        rows, halo = ctx.as_rows(grad), grad.new_empty(ctx.edges.num_halo, grad.shape[1])
        ctx.edges.spread_halo(rows, ctx.norm, halo)
        return ctx.edges.spread_inner(rows, ctx.norm, grad.dtype), halo, None, None, None


class _Attend(Function):
    @staticmethod
    def forward(ctx, target, source, x, edges, slope):
        pattern, _ = edges.attention_pattern
        out, alpha = kernels.attention(pattern, target, source, slope, x)
        ctx.edges, ctx.slope = edges, slope
        ctx.save_for_backward(target, source, x, alpha)
        return out

    @staticmethod
    def backward(ctx, grad):
        target, source, x, alpha = ctx.saved_tensors
        pattern, turned = ctx.edges.attention_pattern
        return *kernels.attention_grad(pattern, turned, target, source, ctx.slope, x, alpha, grad), None, None


class _Dropout(Function):
    """The mask is drawn again for the gradient instead of being kept."""

    @staticmethod
    def forward(ctx, x, nodes, stream, p):
        ctx.nodes, ctx.stream, ctx.p = nodes, stream, p
        return kernels.dropout(x, nodes, stream, p)

    @staticmethod
    def backward(ctx, grad):
        return kernels.dropout(grad, ctx.nodes, ctx.stream, ctx.p), None, None, None


class _ReluDropout(Function):
    """What came out says what passed; the next layer keeps that tensor anyway, so nothing more is stored."""

    @staticmethod
    def forward(ctx, x, nodes, stream, p):
        ctx.scale = 1.0 / (1.0 - p)
        out = kernels.dropout(x, nodes, stream, p, relu=True)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        (out,) = ctx.saved_tensors
        return kernels.kept_positive(out, grad, ctx.scale), None, None, None


class _ReluDropoutBoth(Function):
    """The same, with relu's own result, which has a gradient of its own."""

    @staticmethod
    def forward(ctx, x, nodes, stream, p):
        ctx.set_materialize_grads(False)
        ctx.scale = 1.0 / (1.0 - p)
        before = torch.empty_like(x, memory_format=torch.contiguous_format)
        after = kernels.dropout(x, nodes, stream, p, relu=True, before=before)
        ctx.save_for_backward(after, before)
        return after, before

    @staticmethod
    def backward(ctx, grad, also):
        after, before = ctx.saved_tensors
        if grad is None or also is None:  # one of them was not used
            grad = (
                kernels.kept_positive(before, also, 1.0)
                if grad is None
                else kernels.kept_positive(after, grad, ctx.scale)
            )
        else:
            grad = kernels.both_positive(after, grad, ctx.scale, before, also)
        return grad, None, None, None


def _post_rows(graph: LocalGraph, rows: Tensor, site: int, exact: bool, kind: str, near: bool = False) -> Channel:
    """Sends boundary rows: for this step, or, delayed, for the graph of a later one."""
    channel = graph.channels.channel(site, FORWARD, exact, near)
    if exact:
        channel.post(graph.step, rows, graph.whole.links, kind)
    elif graph.policy.sampler is None:
        channel.post(graph.step, rows, graph.reading.links_at(graph.step, near), kind)
    else:
        for due in channel.dues(graph.step):
            channel.post(graph.step, rows, graph.reading.links_at(due, near), kind, due)
    return channel


def _post_narrow(graph: LocalGraph, late: Late, site: int, kind: str, near: bool) -> Channel:
    """Sends D(S) Wᵀ of boundary rows, D with the mask of the step at which they are due; other rows are not made."""
    assert late.weight is not None, "only narrow rows are made by their owner"
    channel = graph.channels.channel(site, FORWARD, False, near)
    for due in channel.dues(graph.step):
        links = graph.reading.links_at(due, near)
        at, narrow = links.boundary_rows, late.weight.new_empty(len(late.rows), len(late.weight))
        narrow[at] = late.dropped(at, graph.nodes[at], due) @ late.weight.t()
        channel.post(graph.step, graph.as_sent(narrow), links, kind, due)
    return channel


def _through(graph: LocalGraph, channel: Channel, home: Tensor, late: Late) -> tuple[Tensor, Tensor]:
    """The gradients by S and by W of D(S) Wᵀ, whose own [n, F] came from readers: those of a step gone by."""
    assert late.weight is not None, "only narrow rows are made by their owner"
    layout, step = channel.reader.layout, channel.reader.layout_of
    if layout is None:
        return torch.zeros_like(late.rows), torch.zeros_like(late.weight)
    at, of_rows = layout.boundary_rows, torch.zeros_like(late.rows)
    nodes, came = graph.nodes[at], home[at].to(late.weight.dtype)
    of_rows[at] = late.mask.drop(came @ late.weight, nodes, step).to(of_rows.dtype)
    return of_rows, came.t() @ late.dropped(at, nodes, step)


def _return_gradients(
    graph: LocalGraph, edges: Shard, channel: Channel, leaving: Tensor, inner: Callable[[], Tensor]
) -> Tensor:
    """Sends the gradients of halo rows home; ``inner()`` plus those of my boundary rows, [n, F]."""
    rows, overlap = graph.as_sent(leaving), graph.savings.overlap
    if rows is not leaving:
        channel.buffers.give(leaving)
    witness = rows.clone() if graph.channels.probing else rows
    channel.post(graph.step, rows, edges.links, "gradients")
    arrived = None if overlap else channel.take(graph.step)
    out = inner()
    if overlap:
        arrived = channel.take(graph.step)
    if arrived is not None:
        channel.add(arrived, out)
    graph.channels.measure(channel, witness, edges, arrived)
    return out
