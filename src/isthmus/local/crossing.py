"""One site of a pass: boundary rows leave and halo rows arrive, and their gradients the other way."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import BACKWARD, FORWARD, GATHER, SCATTER, Channel, ChannelId
from isthmus.errors import InputError
from isthmus.local.dropout import Late, Mask
from isthmus.local.runtime import Runtime
from isthmus.shard import Norm, Shard


class Crossing:
    """One site in one pass over the graph: rows cross to their readers, later their gradients cross back.

    It holds what the Functions of a site share until the gradients are home.
    """

    def __init__(self, run: Runtime, shard: Shard, site: int, exact: bool = False, needed: bool = False):
        """``exact``: fresh rows of the whole graph, whatever the policy says. ``needed``: only rows next to those that
        the loss needs cross."""
        self.run, self.shard, self.site, self.exact, self.needed = run, shard, site, exact, needed
        self._norm: Norm | None = None
        self.mask: Mask | None = None  # that readers apply
        self.fresh: Callable[[], Tensor] | None = None  # rows as an exact exchange would send them, for the probe
        self.narrow: torch.dtype | None = None  # of rows that owners have transformed
        self.form = 0, run.dtype  # width and dtype of what is read
        self._arrived: Tensor | None = None
        self._gone_back = False
        self._sent_back = torch.empty(0)  # the gradients that left, for the probe
        self._converted: tuple[tuple[int, int], Tensor] | None = (
            None  # the last rows that were brought into another dtype
        )

    @staticmethod
    def for_aggregation(run: Runtime, norm: str, site: int, like: Tensor, exact: bool, only: Tensor | None) -> Crossing:
        """Return the crossing of an aggregation to all rows or ``only`` some, in the sums of rows ``like``."""
        shard, sums = run.whole if exact else run.drawn, kernels.sum_dtype(like.dtype)
        if only is not None:
            shard = run.needed.towards(only, shard, shard.norm(norm, sums).add_self)
        crossing = Crossing(run, shard, site, exact, run.needed.is_needed(only))
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
        """Send boundary rows of x [n, F]: for this step, or, delayed, for the graph of a later one."""
        run, rows, channel = self.run, self.run.as_sent(x), self.channel(FORWARD)
        kind = "embeddings" if x.requires_grad else "features"
        if rows is not x:
            self._converted = kernels.memory_of(x), rows
        if self.exact:
            channel.post(run.step, rows, run.whole.links, kind)
        elif run.policy.sampler is None:
            channel.post(run.step, rows, self.shard.links, kind)
        else:
            for due in channel.dues(run.step):
                channel.post(run.step, rows, run.needed.links_at(due, self.needed), kind, due)
        if run.channels.probing:
            self.fresh = lambda: rows
        self._posted(channel)

    def post_narrow(self, late: Late) -> None:
        """Send D(S) Wᵀ of boundary rows, D with the mask of the step at which they are due; make no other rows."""
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
        if halo is None:
            return
        if self.mask is not None:
            halo = run.as_rows(self.mask.drop(halo.to(out.dtype), self.shard.halo_nodes, run.step))
        self.shard.aggregate_halo(halo, self.norm, out)

    def tied(self, out: Tensor, tie: Tensor) -> Tensor:
        """Return what was made. The step ties the loss to every site: a loss that does not read one still sends."""
        if tie.requires_grad:
            self.run.ties.append(tie)
        return out

    # Backward

    def outbox(self, width: int, dtype: torch.dtype) -> Tensor:
        """Return memory for the gradients of halo rows, [h, F]."""
        return self.channel(BACKWARD).outbox(self.shard.num_halo, width, self.narrow or dtype)

    def spread_halo(self, grad: Tensor | None) -> Tensor:
        """Return the gradients of halo rows, P_haloᵀ grad, [h, F], in an outbox; zeros if nobody reads the site."""
        if grad is None:
            return self.no_gradients()
        out = self.outbox(grad.shape[1], grad.dtype)
        rows = self.run.as_rows(grad)
        if rows is not grad:
            self._converted = kernels.memory_of(grad), rows
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
        self._sent_back = rows.clone() if run.channels.probing else rows
        channel.post(run.step, rows, self.shard.links, "gradients")
        if not run.savings.overlap:
            self._arrived = channel.take(run.step)

    def add_gradients(self, out: Tensor) -> Tensor:
        """Add the gradients that readers sent of my boundary rows to ``out`` [n, F], in place."""
        run, channel = self.run, self.channel(BACKWARD)
        arrived = channel.take(run.step) if run.savings.overlap else self._arrived
        self._arrived = None
        if arrived is not None:
            channel.add(arrived, out)
        run.channels.measure(channel, self._sent_back, self.shard, arrived)
        return out

    def narrow_gradients(self, late: Late, home: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients by S and W of D(S) Wᵀ, from its own [n, F] that readers sent of a step gone by."""
        assert late.weight is not None, "only narrow rows are made by their owner"
        reader = self.channel(BACKWARD).reader
        if reader.layout is None:
            return torch.zeros_like(late.rows), torch.zeros_like(late.weight)
        at, of_rows = reader.layout.boundary_rows, torch.zeros_like(late.rows)
        nodes, came = self.run.whole.nodes[at], home[at].to(late.weight.dtype)
        of_rows[at] = late.mask.drop(came @ late.weight, nodes, reader.layout_of).to(of_rows.dtype)
        return of_rows, came.t() @ late.dropped(at, nodes, reader.layout_of)

    def as_rows(self, x: Tensor) -> Tensor:
        """Return rows in the dtype in which they are read; once, where the halo's half has done it already."""
        converted, self._converted = self._converted, None
        if converted is not None and converted[0] == kernels.memory_of(x):
            return converted[1]
        return self.run.as_rows(x)
