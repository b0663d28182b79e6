"""The exchange as autograd Functions: `Post` sends boundary rows, `Take` adds the product of the halo rows.

    token, x = Post(x)  →  inner = P_inner x  →  Take(token, inner)        forward: send, compute, wait
    wait, add          ←  spread by P_innerᵀ  ←  spread by P_haloᵀ, send   backward: the same in reverse

The token is empty: it stands for rows under way, and makes autograd walk back in this order. So transfers run beside
the inner product in both passes, and nothing is copied for it: halo products are added to the inner one in place.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import Function

from isthmus import kernels
from isthmus.comm import BACKWARD, FORWARD, GATHER, SCATTER, Channel, ChannelId
from isthmus.errors import InputError
from isthmus.local.dropout import Late, Mask
from isthmus.local.product import inner_product
from isthmus.local.runtime import Runtime
from isthmus.shard import Norm, Shard


def aggregate(
    run: Runtime,
    x: Tensor,
    norm: str,
    site: int,
    exact: bool,
    late: Late | None = None,
    only: Tensor | None = None,
) -> Tensor:
    """Return P_inner X + P_halo X_halo, [n, F]; or the rows ``only`` of it."""
    crossing = Crossing.to(run, norm, site, x, exact, only)
    if late is None:
        token, x = Post.apply(crossing, x)
    else:
        crossing.fresh = x.detach
        token = PostLate.apply(crossing, late.mask, late.rows, late.weight)
    return crossing.take(token, inner_product(x, crossing.shard, crossing.norm, crossing.as_rows))


def aggregate_narrow(run: Runtime, x: Tensor, norm: str, site: int, late: Late, only: Tensor) -> Tensor:
    """Return the rows ``only`` of (P_inner X) Wᵀ + P_halo (X_halo Wᵀ), [m, F], for x = D(S) [n, G] of ``late``.

    Few rows are computed here, so they are multiplied by W after their sum; owners send rows already multiplied by W.
    """
    assert late.weight is not None, "narrow rows have a weight"
    crossing = Crossing.to(run, norm, site, late.weight, exact=False, only=only)
    crossing.fresh = lambda: x.detach().to(late.weight.dtype) @ late.weight.detach().t()
    token = PostLate.apply(crossing, late.mask, late.rows, late.weight)
    scale = crossing.shard.norm(norm, kernels.sum_dtype(x.dtype))
    return crossing.take(token, run.linear(inner_product(x, crossing.shard, scale, run.as_rows), late.weight))


def with_halo(run: Runtime, x: Tensor, site: int, exact: bool) -> Tensor:
    """Return [X; X_halo], [n + h, F]."""
    crossing = Crossing(run, run.whole if exact else run.drawn, site, exact)
    token, x = Post.apply(crossing, x)
    return crossing.tied(*TakeBeside.apply(crossing, token, x))


def halo_rows(run: Runtime, x: Tensor, site: int) -> Tensor:
    """Return X_halo alone, [h, F]."""
    crossing = Crossing(run, run.drawn, site)
    token = PostLate.apply(crossing, None, x, None)
    return crossing.tied(*TakeRows.apply(crossing, token, x.detach()))


class Crossing:
    """One site in one pass over the graph: rows cross to their readers, later their gradients cross back.

    It holds what the Functions of a site share until the gradients are back at the owners.
    """

    def __init__(self, run: Runtime, shard: Shard, site: int, exact: bool = False, needed: bool = False):
        """Prepare a crossing.

        ``exact``: send fresh rows of the whole graph, whatever the policy says. ``needed``: only rows next to those
        that the loss needs cross.
        """
        self.run, self.shard, self.site, self.exact, self.needed = run, shard, site, exact, needed
        self._norm: Norm | None = None
        self.mask: Mask | None = None  # the mask that readers apply
        self.fresh: Callable[[], Tensor] | None = None  # rows as an exact exchange would send them, for the probe
        self.narrow: torch.dtype | None = None  # dtype of rows that owners have transformed
        self.form = 0, run.dtype  # width and dtype of what is read
        self._arrived: Tensor | None = None
        self._gone_back = False
        self._converted: tuple[int, Tensor] | None = None  # the last rows that were converted to another dtype

    @staticmethod
    def to(run: Runtime, norm: str, site: int, like: Tensor, exact: bool, only: Tensor | None) -> Crossing:
        """Return the crossing of an aggregation to all rows or ``only`` some, summed as rows ``like`` are."""
        shard, sums = run.whole if exact else run.drawn, kernels.sum_dtype(like.dtype)
        if only is not None:
            shard = run.needed.towards(only, shard, shard.norm(norm, sums).add_self)
        crossing = Crossing(run, shard, site, exact, run.needed.is_near(only))
        crossing._norm = shard.norm(norm, sums)
        return crossing

    @property
    def norm(self) -> Norm:
        """The norm of an aggregation."""
        assert self._norm is not None, "only aggregations have a norm"
        return self._norm

    def channel(self, pass_: str) -> Channel:
        """Return the channel of the leg that a pass uses under an edge-cut."""
        leg = SCATTER if pass_ == FORWARD else GATHER
        return self.run.channels.channel(ChannelId(self.site, pass_, leg), self.exact, self.needed)

    # Forward

    def post(self, x: Tensor) -> None:
        """Send boundary rows of x [n, F] for this step or, if delayed, for the graph of a later one."""
        run, rows, channel = self.run, self.run.as_sent(x), self.channel(FORWARD)
        kind = "embeddings" if x.requires_grad else "features"
        if rows is not x:
            self._converted = x.data_ptr(), rows
        if self.exact:
            channel.post(run.step, rows, run.whole.links, kind)
        elif run.policy.sampler is None:
            channel.post(run.step, rows, run.needed.links_at(run.step, self.needed), kind)
        else:
            for due in channel.dues(run.step):
                channel.post(run.step, rows, run.needed.links_at(due, self.needed), kind, due)
        if run.channels.probing:
            self.fresh = lambda: rows
        self._posted(channel)

    def post_narrow(self, late: Late) -> None:
        """Send D(S) Wᵀ of boundary rows, D with the mask of the step that will read them; compute no other rows."""
        assert late.weight is not None, "only narrow rows are made by their owner"
        run, channel, self.narrow = self.run, self.channel(FORWARD), late.weight.dtype
        for due in channel.dues(run.step):
            links = run.needed.links_at(due, self.needed)
            at, rows = links.boundary_rows, late.weight.new_empty(len(late.rows), len(late.weight))
            rows[at] = late.dropped(at, run.whole.nodes[at], due) @ late.weight.t()
            channel.post(run.step, run.as_sent(rows), links, "embeddings", due)
        self._posted(channel)

    def _posted(self, channel: Channel) -> None:
        if not self.run.savings.overlap:
            self._arrived = channel.take(self.run.step)

    def arrived(self, like: Tensor) -> Tensor | None:
        """Return the halo rows as the channel gives them, [h, F]; None before the first are due.

        ``like`` has the width and dtype of their gradients.
        """
        channel, self.form = self.channel(FORWARD), (like.shape[1], like.dtype)
        if self.run.savings.overlap:
            self._arrived = channel.take(self.run.step)
        taken, self._arrived = self._arrived, None
        if self.run.channels.probing and self.fresh is not None:
            fresh = self.fresh()
            fresh = fresh if self.narrow is None else self.run.as_sent(fresh.to(self.narrow))
            self.run.channels.measure(channel, fresh, self.shard, taken)
        self.fresh = None
        return taken

    def add_halo_product(self, out: Tensor) -> None:
        """Add P_halo X_halo to ``out`` [n, F]."""
        halo, run = self.arrived(out), self.run
        if halo is not None and self.mask is not None:
            halo = run.as_rows(self.mask.drop(halo.to(out.dtype), self.shard.halo_nodes, run.step))
        if halo is not None:
            self.shard.aggregate_halo(halo, self.norm, out)

    def take(self, token: Tensor, inner: Tensor) -> Tensor:
        """Add the halo's product to the inner product [n, F] in place, and return it."""
        return self.tied(*Take.apply(self, token, inner))

    def tied(self, out: Tensor, tie: Tensor) -> Tensor:
        """Return ``out``; keep ``tie``, by which gradients leave even from sites that the loss does not read."""
        if tie.requires_grad:
            self.run.ties.append(tie)
        return out

    # Backward

    def outbox(self, width: int, dtype: torch.dtype) -> Tensor:
        """Return memory for the gradients of halo rows, [h, F]."""
        return self.channel(BACKWARD).outbox(self.shard.num_halo, width, self.narrow or dtype)

    def spread_halo(self, grad: Tensor | None) -> Tensor:
        """Return the gradients of halo rows, P_haloᵀ grad, [h, F], in an outbox; zeros if nothing reads the site."""
        if grad is None:
            return self.no_gradients()
        out = self.outbox(grad.shape[1], grad.dtype)
        rows = self.run.as_rows(grad)
        if rows is not grad:
            self._converted = grad.data_ptr(), rows
        self.shard.spread_halo(rows, self.norm, out)
        return out if self.mask is None else self.mask.drop(out, self.shard.halo_nodes, self.run.step, out=out)

    def no_gradients(self) -> Tensor:
        """Return zeros as gradients of halo rows."""
        return self.outbox(*self.form).zero_()

    def post_gradients(self, leaving: Tensor) -> None:
        """Send the gradients of halo rows, which lie in an outbox, to the owners."""
        if self._gone_back:
            raise InputError(
                "gradients were asked for twice: call loss.backward() once per forward pass, without retain_graph"
            )
        self._gone_back = True
        run, channel = self.run, self.channel(BACKWARD)
        rows = run.as_sent(leaving)
        if rows is not leaving:
            channel.buffers.give(leaving)
        self._witness = rows.clone() if run.channels.probing else rows
        channel.post(run.step, rows, self.shard.links, "gradients")
        if not run.savings.overlap:
            self._arrived = channel.take(run.step)

    def add_gradients(self, out: Tensor) -> Tensor:
        """Add the gradients that readers sent for my boundary rows to ``out`` [n, F], in place."""
        run, channel = self.run, self.channel(BACKWARD)
        arrived = channel.take(run.step) if run.savings.overlap else self._arrived
        self._arrived = None
        if arrived is not None:
            channel.add(arrived, out)
        run.channels.measure(channel, self._witness, self.shard, arrived)
        return out

    def through(self, late: Late, home: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients by S and W of D(S) Wᵀ, given its gradient [n, F] that readers sent earlier."""
        assert late.weight is not None, "only narrow rows are made by their owner"
        reader = self.channel(BACKWARD).reader
        if reader.layout is None:
            return torch.zeros_like(late.rows), torch.zeros_like(late.weight)
        at, of_rows = reader.layout.boundary_rows, torch.zeros_like(late.rows)
        nodes, came = self.run.whole.nodes[at], home[at].to(late.weight.dtype)
        of_rows[at] = late.mask.drop(came @ late.weight, nodes, reader.layout_of).to(of_rows.dtype)
        return of_rows, came.t() @ late.dropped(at, nodes, reader.layout_of)

    def as_rows(self, x: Tensor) -> Tensor:
        """Return rows in the dtype in which they are read; reuse the conversion that the halo half has made."""
        converted, self._converted = self._converted, None
        if converted is not None and converted[0] == x.data_ptr():
            return converted[1]
        return self.run.as_rows(x)


class Post(Function):
    """Function that sends rows; returns a token for them and the rows, to which readers' gradients will be added."""

    @staticmethod
    def forward(ctx, crossing, x):
        ctx.set_materialize_grads(False)
        ctx.crossing, ctx.shape = crossing, x.shape
        crossing.post(x)
        return x.new_empty(0), x.view_as(x)

    @staticmethod
    def backward(ctx, token, grad):
        if grad is None:  # nothing reads the inner half
            grad = token.new_zeros(ctx.shape)
        return None, ctx.crossing.add_gradients(grad)  # in place: the inner product alone has made this gradient


class PostLate(Function):
    """Function that sends other rows than the inner half's: from before dropout, or transformed by their owner."""

    @staticmethod
    def forward(ctx, crossing, mask, rows, weight):
        ctx.crossing, ctx.mask, ctx.narrow = crossing, mask, weight is not None
        if ctx.narrow:
            ctx.save_for_backward(rows, weight)
            crossing.post_narrow(Late(rows, mask, weight))
        else:
            ctx.like = rows.shape
            crossing.mask = mask
            crossing.post(rows)
        return rows.new_empty(0)

    @staticmethod
    def backward(ctx, token):
        crossing = ctx.crossing
        if not ctx.narrow:
            return None, None, crossing.add_gradients(token.new_zeros(ctx.like)), None
        rows, weight = ctx.saved_tensors
        home = crossing.add_gradients(weight.new_zeros(len(rows), len(weight)))
        return None, None, *crossing.through(Late(rows, ctx.mask, weight), home)


class Take(Function):
    """Function that waits for halo rows and adds their product to the inner one; backward, gradients leave first."""

    @staticmethod
    def forward(ctx, crossing, token, inner):
        ctx.set_materialize_grads(False)
        ctx.crossing = crossing
        ctx.mark_dirty(inner)
        crossing.add_halo_product(inner)
        return inner, inner.new_empty(0)

    @staticmethod
    def backward(ctx, grad, tie):
        if not ctx.needs_input_grad[1]:
            return None, None, grad
        ctx.crossing.post_gradients(ctx.crossing.spread_halo(grad))
        return None, _token(grad, tie), grad


class TakeBeside(Function):
    """Function that waits for halo rows and puts them below the inner ones: [X; X_halo]."""

    @staticmethod
    def forward(ctx, crossing, token, x):
        ctx.set_materialize_grads(False)
        ctx.crossing, ctx.n = crossing, len(x)
        out = x.new_empty(len(x) + crossing.shard.num_halo, x.shape[1])
        out[: ctx.n] = x
        arrived = crossing.arrived(x)
        out[ctx.n :] = 0 if arrived is None else arrived
        return out, x.new_empty(0)

    @staticmethod
    def backward(ctx, grad, tie):
        if not ctx.needs_input_grad[1]:
            return None, None, None if grad is None else grad[: ctx.n]
        if grad is None:
            ctx.crossing.post_gradients(ctx.crossing.no_gradients())
            return None, _token(grad, tie), None
        ctx.crossing.post_gradients(ctx.crossing.outbox(grad.shape[1], grad.dtype).copy_(grad[ctx.n :]))
        return None, _token(grad, tie), grad[: ctx.n].clone()


class TakeRows(Function):
    """Function that waits for halo rows and returns them alone."""

    @staticmethod
    def forward(ctx, crossing, token, like):
        ctx.set_materialize_grads(False)
        ctx.crossing, arrived = crossing, crossing.arrived(like)
        none = like.new_zeros(crossing.shard.num_halo, like.shape[1])
        return none if arrived is None else arrived.detach().to(like.dtype), like.new_empty(0)

    @staticmethod
    def backward(ctx, grad, tie):
        crossing = ctx.crossing
        leaving = crossing.no_gradients() if grad is None else crossing.outbox(grad.shape[1], grad.dtype).copy_(grad)
        crossing.post_gradients(leaving)
        return None, _token(grad, tie), None


def _token(grad: Tensor | None, tie: Tensor | None) -> Tensor:
    """Return the gradient of a token: empty, but not None, so that autograd walks on to `Post`."""
    like = tie if grad is None else grad
    assert like is not None, "one of the two was asked for"
    return like.new_empty(0)
