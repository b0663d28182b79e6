"""Figures of the rows of all workers together: moments for norms, and the sums, means and maxima that a model asks for.

Each is one message per pass. Every worker sends the figures of its own rows to all others and puts all of them together
in the order of ranks, so that all workers get the same bits. The loss is the sum of the workers' losses: a gradient
is therefore summed over the workers, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from isthmus import kernels
from isthmus.comm import BACKWARD, FORWARD, Where
from isthmus.errors import InputError
from isthmus.local.runtime import Runtime


class Moments(NamedTuple):
    """The number [G, 1] of all workers' rows in each group, their mean and variance (biased), [G, F]."""

    number: Tensor
    mean: Tensor
    variance: Tensor


class Groups(NamedTuple):
    """The group of every row here, int64 [n], and the number of groups of all workers; None: one group."""

    of_row: Tensor | None
    number: int

    def sum(self, x: Tensor) -> Tensor:
        """Return the sums of rows x [n, F] by group, [G, F]."""
        if self.of_row is None:
            return x.sum(0, keepdim=True)
        return x.new_zeros(self.number, x.shape[1]).index_add_(0, self.of_row, x)

    def spread(self, values: Tensor) -> Tensor:
        """Return the values [G, F] of every row's group, [n, F]; [1, F] if there is one group."""
        return values if self.of_row is None else values[self.of_row]


class AllNodes:
    """The questions about all workers' rows that a model may put to its graph; every worker asks at the same time."""

    runtime: Runtime

    def sum(self, x: Tensor, groups: Tensor | None = None, count: int | None = None) -> Tensor:
        """Return the sum of the rows x [n, F] of all workers, [F]; or by group, [count, F].

        ``groups`` int64 [n] says which group each row belongs to; ``count`` is the number of groups, found by a message
        if it is not given. Every worker gets the result, and gradients flow back to all rows.
        """
        return _shaped(_sum(self.runtime, x, _groups(self.runtime, x, groups, count)), groups)

    def mean(self, x: Tensor, groups: Tensor | None = None, count: int | None = None) -> Tensor:
        """Return the mean of the rows of all workers, [F]; or by group, [count, F], zeros for a group without rows."""
        found = _groups(self.runtime, x, groups, count)
        total = _sum(self.runtime, torch.cat([x, x.new_ones(len(x), 1)], dim=1), found)
        return _shaped(total[:, :-1] / total[:, -1:].clamp_min(1), groups)

    def max(self, x: Tensor, groups: Tensor | None = None, count: int | None = None) -> Tensor:
        """Return the maxima of the columns of x over all workers' rows, [F]; or by group, [count, F].

        Equal maxima share the gradient, as in `torch.amax`. A group without rows has -inf.
        """
        found = _groups(self.runtime, x, groups, count)
        return _shaped(_tied(self.runtime, *_Max.apply(self.runtime, x, found, self.runtime.next_sum())), groups)

    def moments(self, x: Tensor, groups: Tensor | None = None, count: int | None = None) -> Moments:
        """Return number, mean and variance of all workers' rows, by group: one message for the three."""
        run, found = self.runtime, _groups(self.runtime, x, groups, count)
        *moments, tie = _Moments.apply(run, x, found, run.next_sum())
        return Moments(*_tied(run, tuple(moments), tie))


def check_once(run: Runtime) -> None:
    """Refuse shards on which a node has rows at several workers: they would count several times."""
    if run.whole.replicated:
        raise InputError("sums and norms over all nodes are for edge- and cover-cuts: cut the graph with --cut edge")


def where(run: Runtime, site: int, pass_: str) -> Where:
    """Return the place of the k-th sum over all workers' rows of a pass."""
    return Where(f"sum {site}", pass_, run.step, "embeddings" if pass_ == FORWARD else "gradients")


def merged_moments(run: Runtime, x: Tensor, groups: Groups, site: int) -> Moments:
    """Return the moments of all workers' rows in float64, without a gradient."""
    if groups.of_row is None:
        mean, squares = kernels.column_moments(x)
        mine = torch.cat([mean.new_tensor([float(len(x))]), mean, squares])[None]
    else:
        number = groups.sum(x.new_ones(len(x), 1, dtype=torch.float64))
        mean = groups.sum(x.double()) / number.clamp_min(1)
        squares = groups.sum((x.double() - groups.spread(mean)).square())
        mine = torch.cat([number, mean, squares], dim=1)
    merged = kernels.merge_moments(run.transport.stack(mine, where(run, site, FORWARD)))
    return Moments(*merged.split([1, x.shape[1], x.shape[1]], dim=1))


class _Moments(Function):
    @staticmethod
    def forward(ctx: Any, run: Runtime, x: Tensor, groups: Groups, site: int):
        number, mean, variance = (one.to(x.dtype) for one in merged_moments(run, x, groups, site))
        ctx.run, ctx.groups, ctx.site = run, groups, site
        ctx.save_for_backward(x, number, mean)
        ctx.mark_non_differentiable(number)
        return number, mean, variance, x.new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor, by_mean: Tensor, by_variance: Tensor, tie: Tensor):
        x, number, mean = ctx.saved_tensors
        every = ctx.run.transport.stack(torch.cat([by_mean, by_variance], dim=1), where(ctx.run, ctx.site, BACKWARD))
        by_mean, by_variance = (every.sum(0) / number.clamp_min(1)).chunk(2, dim=1)
        spread = ctx.groups.spread
        return None, torch.addcmul(spread(by_mean), x - spread(mean), spread(by_variance), value=2), None, None


class _Sum(Function):
    @staticmethod
    def forward(ctx: Any, run: Runtime, x: Tensor, groups: Groups, site: int):
        ctx.run, ctx.groups, ctx.site, ctx.shape = run, groups, site, x.shape
        return run.transport.stack(groups.sum(x), where(run, site, FORWARD)).sum(0), x.new_zeros(())

    @staticmethod
    def backward(ctx: Any, grad: Tensor, tie: Tensor):
        total = ctx.run.transport.stack(grad.contiguous(), where(ctx.run, ctx.site, BACKWARD)).sum(0)
        return None, ctx.groups.spread(total).expand(ctx.shape), None, None


class _Max(Function):
    @staticmethod
    def forward(ctx: Any, run: Runtime, x: Tensor, groups: Groups, site: int):
        least = x.new_full((groups.number, x.shape[1]), -torch.inf)
        to = x.new_zeros(len(x), dtype=torch.int64) if groups.of_row is None else groups.of_row
        mine = least.scatter_reduce_(0, to[:, None].expand_as(x), x, "amax")
        largest = run.transport.stack(mine, where(run, site, FORWARD)).amax(0)
        ctx.run, ctx.groups, ctx.site = run, groups, site
        ctx.save_for_backward(x, largest)
        return largest, x.new_zeros(())

    @staticmethod
    def backward(ctx: Any, grad: Tensor, tie: Tensor):
        x, largest = ctx.saved_tensors
        hit = (x == ctx.groups.spread(largest)).to(x.dtype)
        message = torch.cat([grad, ctx.groups.sum(hit)], dim=1)
        total, hits = ctx.run.transport.stack(message, where(ctx.run, ctx.site, BACKWARD)).sum(0).chunk(2, dim=1)
        return None, hit * ctx.groups.spread(total / hits.clamp_min(1)), None, None


def _sum(run: Runtime, x: Tensor, groups: Groups) -> Tensor:
    return _tied(run, *_Sum.apply(run, x, groups, run.next_sum()))


def _tied(run: Runtime, out: Any, tie: Tensor) -> Any:
    """Return what was made; a worker whose loss does not read it still takes part in the backward pass."""
    if tie.requires_grad:
        run.ties.append(tie)
    return out


def _groups(run: Runtime, x: Tensor, of_row: Tensor | None, count: int | None) -> Groups:
    check_once(run)
    if of_row is None:
        return Groups(None, 1)
    if of_row.dtype != torch.int64 or of_row.shape != x.shape[:1]:
        raise InputError(
            f"groups of shape {list(of_row.shape)} were given: pass the group of each row, int64 [{len(x)}]"
        )
    last = int(of_row.max()) if len(of_row) else -1
    if count is None:
        mine = of_row.new_tensor([last])
        count = int(run.transport.stack(mine, where(run, run.next_sum(), FORWARD)).max()) + 1
    if len(of_row) and not 0 <= int(of_row.min()) <= last < count:
        raise InputError(
            f"groups are numbered 0 to {count - 1}, not {int(of_row.min())} to {last}: pass a larger count"
        )
    return Groups(of_row, count)


def _shaped(values: Tensor, groups: Tensor | None) -> Tensor:
    return values[0] if groups is None else values
