"""The exchange of a vertex-cut: sums of mirrors are gathered at their masters, totals are scattered to the mirrors.

    Z = S(A X)        forward: sum over the edges that are here, then S
    Aᵀ S(grad)        backward: S, then spread along the edges that are here

S adds up the rows of all replicas of a node and gives every replica the total; it is its own transpose. So each pass
has both legs, first the gather, then the scatter. Where only results of masters are read, nothing is scattered forward,
and nothing gathered backward. In a directed graph a mirror may need one leg alone: one that no edge leads to has no sum
to send (and needs no gradient of it), one that no edge begins with needs no row (and has no gradient to send).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import Function

from isthmus import kernels
from isthmus.comm import BACKWARD, FORWARD, GATHER, SCATTER, Channel, ChannelId, Links
from isthmus.errors import InputError
from isthmus.kernels import Csr, Scores
from isthmus.local.attention import Weighted, leaky_slope, sum_by_heads
from isthmus.local.runtime import Runtime
from isthmus.shard import Leg, Norm, Replicas, VertexShard


def aggregate(run: Runtime, x: Tensor, norm: str, site: int, exact: bool, only: Tensor | None) -> Tensor:
    """Return P X for all replicas here, [N, F], the same row wherever a node has one; or, for the masters ``only``."""
    whole, sums = run.whole, kernels.sum_dtype(x.dtype)
    assert isinstance(whole, VertexShard), "other cuts have no replicas"
    needed = run.needed.replicas(only)
    shard = whole.replicas(whole.norm(norm, sums).add_self, needed)
    replication = Replication(run, shard, site, exact)
    return replication.tied(*_Aggregate.apply(replication, x, shard.norm(norm, sums)))


def attend(run: Runtime, scores: Scores, x: Tensor, site: int) -> Tensor:
    """Return softmax attention over N(i) ∪ i for all replicas here, [N, H·D]; scores and rows of all replicas."""
    whole = run.whole
    assert isinstance(whole, VertexShard), "other cuts have no replicas"
    if any(not stages.plain or stages.mixes_steps for stages in run.policy.every_stages) and run.training:
        raise InputError("attention needs rows that are fresh and sent as they are: take gcn, sage or another recipe")
    whole.weights_read |= whole.weighted
    replication = Replication(run, whole.replicas(True, None), site, not run.training, attends=True)
    target = replication.tied(*_Complete.apply(replication, scores.target, run.next_site()))
    return replication.tied(*_Attend.apply(replication, target, scores.source, x, scores.slope))


class Replication:
    """One site of a pass: the rows of all replicas of a node become their sum."""

    def __init__(self, run: Runtime, shard: Replicas, site: int, exact: bool, attends: bool = False):
        """``attends``: what mirrors send forward is merged by their masters, one by one, not summed."""
        self.run, self.shard, self.site, self.exact, self.attends = run, shard, site, exact, attends
        self._gone_back = False

    def channel(self, pass_: str, leg: str) -> Channel:
        needed, merged = self.shard.needed is not None, self.attends and (pass_, leg) == (FORWARD, GATHER)
        return self.run.channels.channel(ChannelId(self.site, pass_, leg), self.exact, needed, relayed=not merged)

    def leg(self, pass_: str, leg: str) -> Leg:
        """Return the mirrors that take part in a leg: all, where senders choose among their rows (as CDFGNN does)."""
        every = self.run.policy.caches or (self.attends and (pass_, leg) == (FORWARD, SCATTER))
        return Leg(self.shard.links) if every else self.shard.leg(pass_, leg)

    def post_sums(self, pass_: str, rows: Tensor, kind: str) -> None:
        """Send rows of mirrors, which follow those of masters in ``rows`` [m + k, F], to the masters."""
        channel, (links, mirrors) = self.channel(pass_, GATHER), self.leg(pass_, GATHER)
        leaving = self.run.as_sent(self.of_mirrors(rows, mirrors))
        leaving = leaving.clone() if channel.stages.delay else leaving  # the rows will be overwritten
        channel.post(self.run.step, leaving, links, kind)

    def of_mirrors(self, rows: Tensor, mirrors: Tensor | None) -> Tensor:
        rows = rows[self.shard.masters :]
        return rows if mirrors is None else rows[mirrors]

    def add_sums(self, pass_: str, rows: Tensor) -> None:
        """Add what mirrors elsewhere have sent to the rows of my masters."""
        self.hold_own(pass_, rows)
        channel, masters = self.channel(pass_, GATHER), rows[: self.shard.masters]
        sums = channel.take(self.run.step)
        if sums is not None:
            channel.add(sums, masters)

    def hold_own(self, pass_: str, rows: Tensor) -> None:
        """Replace the rows that masters have made by older ones, where these have moved too little to be sent."""
        channel, masters = self.channel(pass_, GATHER), rows[: self.shard.masters]
        select = channel.stages.select
        if select.compares and not select.chance:
            at = slice(None) if select.singletons else self.shard.links.boundary_rows
            masters[at] = channel.own.take(masters[at], self.run.step)

    def scatter(self, pass_: str, rows: Tensor, kind: str) -> None:
        """Send the rows of my masters to their mirrors, and overwrite the rows of my mirrors by what arrives."""
        channel, (links, mirrors), m = self.channel(pass_, SCATTER), self.leg(pass_, SCATTER), self.shard.masters
        channel.post(self.run.step, self.run.as_sent(rows[:m]), links, kind)
        totals = channel.take(self.run.step)
        if totals is not None:
            rows[m:][slice(None) if mirrors is None else mirrors] = totals.to(rows.dtype)
        if not channel.stages.select.chance:
            channel.held(rows, links)  # all replicas use what the mirrors hold

    def back(self, grad: Tensor | None, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
        """Return the gradients of the total of every replica, [m + k, F], from those that this worker has made."""
        if self._gone_back:
            raise InputError(
                "gradients were asked for twice: call loss.backward() once per forward pass, without retain_graph"
            )
        self._gone_back = True
        rows = torch.zeros(self.shard.num_inner, shape[1], dtype=dtype, device=self.shard.device)
        if grad is not None:
            rows[: len(grad)] = grad
        if self.shard.needed is None:
            self.post_sums(BACKWARD, rows, "gradients")
            self.add_sums(BACKWARD, rows)
        else:
            self.hold_own(BACKWARD, rows)  # mirrors of rows that are read have no gradients of their own
        self.scatter(BACKWARD, rows, "gradients")
        return rows

    def tied(self, out: Tensor, tie: Tensor) -> Tensor:
        """Return what was made. The step ties the loss to every site: a loss that does not read one still sends."""
        if tie.requires_grad:
            self.run.ties.append(tie)
        return out


class _Aggregate(Function):
    @staticmethod
    def forward(ctx, replication, x, norm: Norm):
        ctx.set_materialize_grads(False)
        run, shard = replication.run, replication.shard
        rows, kind = run.as_rows(x), "embeddings" if x.requires_grad else "features"
        out = x.new_empty(shard.num_inner, x.shape[1])
        shard.sum_to_mirrors(rows, norm, out)
        replication.post_sums(FORWARD, out, kind)
        shard.sum_to_masters(rows, norm, out)
        replication.add_sums(FORWARD, out)
        ctx.replication, ctx.norm, ctx.form = replication, norm, (tuple(out.shape), out.dtype)
        if shard.needed is not None:
            return out[: shard.masters].clone(), out.new_zeros(())
        replication.scatter(FORWARD, out, kind)
        return out, out.new_zeros(())

    @staticmethod
    def backward(ctx, grad, tie):
        replication, (shape, dtype) = ctx.replication, ctx.form
        rows = replication.run.as_rows(replication.back(grad, shape, dtype))
        return None, replication.shard.spread_inner(rows, ctx.norm, dtype), None


class _Complete(Function):
    """Fetch rows of mirrors that edges lead to and that no edge here begins with: nobody else needs them."""

    @staticmethod
    def forward(ctx, replication, x, site):
        ctx.set_materialize_grads(False)
        run, (links, mirrors), m = replication.run, replication.shard.whole.unread, replication.shard.masters
        ctx.about, ctx.form = (run, links, mirrors, m, site, replication.exact), (x.shape, x.dtype, x.device)
        channel, out = run.channels.channel(ChannelId(site, FORWARD, SCATTER), replication.exact), x.clone()
        channel.post(run.step, run.as_sent(x[:m].contiguous()), links, "embeddings")
        came = channel.take(run.step)
        assert came is not None, "rows are not delayed"
        out[m:][slice(None) if mirrors is None else mirrors] = came.to(out.dtype)
        return out, x.new_zeros(())

    @staticmethod
    def backward(ctx, grad, tie):
        (run, links, mirrors, m, site, exact), (shape, dtype, device) = ctx.about, ctx.form
        grad = torch.zeros(shape, dtype=dtype, device=device) if grad is None else grad.clone()
        at = slice(None) if mirrors is None else mirrors
        channel = run.channels.channel(ChannelId(site, BACKWARD, GATHER), exact)
        channel.post(run.step, run.as_sent(grad[m:][at].contiguous()), links, "gradients")
        grad[m:][at] = 0
        came = channel.take(run.step)
        assert came is not None, "gradients are not delayed"
        channel.add(came, grad[:m])
        return None, grad, None


class _Attend(Function):
    """Attention whose softmax runs over the edges of all replicas: each sends its own result and log Σ exp."""

    @staticmethod
    def forward(ctx, replication, target, source, x, slope):
        ctx.set_materialize_grads(False)
        pattern, weight, heads = replication.shard.inner, replication.shard.inner_weight, target.shape[1]
        local, alpha = kernels.attention(pattern, Scores(target, source, slope), x)
        if weight is not None:
            local = sum_by_heads(pattern, alpha * weight.to(alpha.dtype)[:, None], x)
        size = _log_sum_exp(pattern, target, source, slope)
        out, total = _merged(replication, local, size)
        share = (size - total).exp()  # that the edges here have in the softmax of all edges, [N, H]
        own = (local.unflatten(1, (heads, -1)) * share[:, :, None]).flatten(1)
        ctx.replication, ctx.slope, ctx.form = replication, slope, (tuple(out.shape), out.dtype)
        rest = own - out if weight is None else out
        ctx.save_for_backward(target, source, x, alpha * share[pattern.edge_rows], rest)
        return out, out.new_zeros(())

    @staticmethod
    def backward(ctx, grad, tie):
        replication, (target, source, x, alpha, lacking) = ctx.replication, ctx.saved_tensors
        grad, pattern = replication.back(grad, *ctx.form), replication.shard.inner
        scores, weight = Scores(target, source, ctx.slope), replication.shard.inner_weight
        turned = kernels.transpose(pattern)
        if weight is not None:
            weighted = Weighted(pattern, turned, scores, alpha, weight.to(alpha.dtype)[:, None])
            return None, *weighted.gradients(x, lacking, grad), None
        of_target, of_source, of_x = kernels.attention_grad(pattern, turned, scores, x, alpha, grad)
        # The kernel takes from every edge the mean over the edges that are here; it must be that over all edges.
        rows, cols = pattern.edge_rows, pattern.indices.long()
        mean = (lacking * grad).unflatten(1, (target.shape[1], -1)).sum(-1)
        rest = alpha * leaky_slope(target[rows] + source[cols], ctx.slope) * mean[rows]
        return None, of_target.index_add(0, rows, rest), of_source.index_add(0, cols, rest), of_x, None


def _merged(replication: Replication, local: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """Return result and log Σ exp over the edges of all replicas, [N, H·D] and [N, H], on every replica."""
    rows, width, m = torch.cat([local, size], dim=1), local.shape[1], replication.shard.masters
    replication.post_sums(FORWARD, rows, "embeddings")
    channel = replication.channel(FORWARD, GATHER)
    taken = channel.take(replication.run.step)
    assert taken is not None, "rows are not delayed"
    links = replication.leg(FORWARD, GATHER).links
    came = [(at.long(), part[:, :width], part[:, width:]) for at, part in _by_peer(links, taken)]
    largest = size[:m].clone()
    for at, _, theirs in came:
        largest[at] = torch.maximum(largest[at], theirs)
    weight = (size[:m] - largest).exp()
    total, heads = weight.clone(), size.shape[1]
    out = local[:m].unflatten(1, (heads, -1)) * weight[:, :, None]
    for at, result, theirs in came:
        weight = (theirs - largest[at]).exp()
        total[at] += weight
        out[at] += result.unflatten(1, (heads, -1)) * weight[:, :, None]
    rows[:m, :width] = (out / total[:, :, None]).flatten(1)
    rows[:m, width:] = largest + total.log()
    replication.scatter(FORWARD, rows, "embeddings")
    return rows[:, :width].contiguous(), rows[:, width:].contiguous()


def _by_peer(links: Links, taken: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return my masters' rows that each worker has mirrors of, and what came for them."""
    return list(zip(links.send_rows, links.boundary.split(taken), strict=True))


def _log_sum_exp(pattern: Csr, target: Tensor, source: Tensor, slope: float) -> Tensor:
    """Return log Σ exp of the scores of each row's edges, [rows, H]; −∞ for a row without edges."""
    rows = pattern.edge_rows
    score = torch.nn.functional.leaky_relu(target[rows] + source[pattern.indices.long()], slope)
    largest = torch.full_like(target, -torch.inf)
    largest.scatter_reduce_(0, rows[:, None].expand_as(score), score, "amax")
    total = torch.zeros_like(target).index_add_(0, rows, (score - largest[rows]).exp())
    return largest + total.log()
