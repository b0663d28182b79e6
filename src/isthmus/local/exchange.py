"""The exchange as autograd Functions: `Post` sends boundary rows, `Take` adds the product of the halo rows.

    token, x = Post(x)  →  inner = P_inner x  →  Take(token, inner)        forward: send, compute, wait
    wait, add          ←  spread by P_innerᵀ  ←  spread by P_haloᵀ, send   backward: the same in reverse

The token is empty: it stands for rows under way, and makes autograd walk back in this order. So transfers run beside
the inner product in both passes, and nothing is copied for it: halo products are added to the inner one in place.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor
from torch.autograd import Function

from isthmus import kernels
from isthmus.local import replication
from isthmus.local.crossing import Crossing
from isthmus.local.dropout import Late
from isthmus.local.product import inner_product
from isthmus.local.runtime import Runtime


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
    if run.whole.replicated:
        return replication.aggregate(run, x, norm, site, exact, only)
    crossing = Crossing.for_aggregation(run, norm, site, x, exact, only)
    if late is None:
        token, x = Post.apply(crossing, x)
    else:
        if late.weight is not None:
            crossing.fresh = x.detach
        token = PostLate.apply(crossing, late.mask, late.rows, late.weight)
    return _take(crossing, token, inner_product(x, crossing.shard, crossing.norm, crossing.as_rows))


def aggregate_alone(run: Runtime, x: Tensor, norm: str) -> Tensor:
    """Return P X, [n, F], of a graph whose rows are all here; that of rows which never change is made once."""
    scale = run.drawn.norm(norm, kernels.sum_dtype(x.dtype))
    make = partial(inner_product, x, run.drawn, scale, run.as_rows)
    return run.fixed.lent(f"aggregate {norm}", make) if run.is_fixed(x) else make()


def aggregate_narrow(run: Runtime, x: Tensor, norm: str, site: int, late: Late, only: Tensor) -> Tensor:
    """Return the rows ``only`` of (P_inner X) Wᵀ + P_halo (X_halo Wᵀ), [m, F], for x = D(S) [n, G] of ``late``.

    Few rows are computed here, so they are multiplied by W after their sum; owners send rows already multiplied by W.
    """
    assert late.weight is not None, "narrow rows have a weight"
    crossing = Crossing.for_aggregation(run, norm, site, late.weight, exact=False, only=only)
    crossing.fresh = lambda: x.detach().to(late.weight.dtype) @ late.weight.detach().t()
    token = PostLate.apply(crossing, late.mask, late.rows, late.weight)
    scale = crossing.shard.norm(norm, kernels.sum_dtype(x.dtype))
    own = run.linear(inner_product(x, crossing.shard, scale, run.as_rows), late.weight).to(late.weight.dtype)
    return _take(crossing, token, own)


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


def _take(crossing: Crossing, token: Tensor, inner: Tensor) -> Tensor:
    """Return the inner product [n, F] with that of the halo added to it, in place."""
    return crossing.tied(*Take.apply(crossing, token, inner))


class Post(Function):
    """Function that sends rows; returns a token for them and the rows, to which readers' gradients will be added."""

    @staticmethod
    def forward(ctx, crossing, x):
        ctx.set_materialize_grads(False)
        ctx.crossing, ctx.shape = crossing, x.shape
        crossing.post(x)
        return x.new_zeros(()), x.view_as(x)

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
        return rows.new_zeros(())

    @staticmethod
    def backward(ctx, token):
        crossing = ctx.crossing
        if not ctx.narrow:
            return None, None, crossing.add_gradients(token.new_zeros(ctx.like)), None
        rows, weight = ctx.saved_tensors
        home = crossing.add_gradients(weight.new_zeros(len(rows), len(weight)))
        return None, None, *crossing.narrow_gradients(Late(rows, ctx.mask, weight), home)


class Take(Function):
    """Function that waits for halo rows and adds their product to the inner one; backward, gradients leave first."""

    @staticmethod
    def forward(ctx, crossing, token, inner):
        ctx.set_materialize_grads(False)
        ctx.crossing = crossing
        ctx.mark_dirty(inner)
        crossing.add_halo_product(inner)
        return inner, inner.new_zeros(())

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
        return out, x.new_zeros(())

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
        return none if arrived is None else arrived.detach().to(like.dtype), like.new_zeros(())

    @staticmethod
    def backward(ctx, grad, tie):
        crossing = ctx.crossing
        leaving = crossing.no_gradients() if grad is None else crossing.outbox(grad.shape[1], grad.dtype).copy_(grad)
        crossing.post_gradients(leaving)
        return None, _token(grad, tie), None


def _token(grad: Tensor | None, tie: Tensor | None) -> Tensor:
    """Return the gradient of a token: zero, but not None, so that autograd walks on to `Post`."""
    like = tie if grad is None else grad
    assert like is not None, "one of the two was asked for"
    return like.new_zeros(())
