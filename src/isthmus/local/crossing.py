"""One site of a pass: boundary rows leave and halo rows arrive, and their gradients the other way."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import BACKWARD, FORWARD, GATHER, SCATTER, Channel, ChannelId, Where
from isthmus.errors import InputError
from isthmus.local.dropout import Late, Mask
from isthmus.local.runtime import Runtime
from isthmus.local.watched_rows import watch_gradients
from isthmus.shard import Covered, Norm, Shard


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
        self._arrived: dict[str, Tensor | None] = {}  # by leg, where rows are waited for as soon as they are sent
        self._gone_back = False
        self._sent_back = torch.empty(0)  # the gradients that left, for the probe
        self._converted: tuple[tuple[int, int], Tensor] | None = (
            None  # the last rows that were brought into another dtype
        )

    @staticmethod
    def for_aggregation(run: Runtime, norm: str, site: int, like: Tensor, exact: bool, only: Tensor | None) -> Crossing:
        """Return the crossing of an aggregation to all rows or ``only`` some, in the sums of rows ``like``."""
        shard, sums = run.whole if exact else run.drawn, kernels.sum_dtype(like.dtype)
        with_self = shard.norm(norm, sums).add_self
        covers = run.covers(exact)
        covered = covers.shard(only, with_self) if covers is not None and shard is run.whole else None
        if covered is not None:
            shard = covered
        elif only is not None:
            shard = run.needed.towards(only, shard, with_self)
        crossing = Crossing(run, shard, site, exact, run.needed.is_needed(only))
        crossing._norm = shard.norm(norm, sums)
        return crossing

    @property
    def covered(self) -> Covered | None:
        """The shard, if sums over some of its edges come from other workers."""
        return self.shard if isinstance(self.shard, Covered) else None

    @property
    def norm(self) -> Norm:
        """The norm of an aggregation."""
        assert self._norm is not None, "only aggregations have a norm"
        return self._norm

    def channel(self, pass_: str, other: bool = False) -> Channel:
        """Return the channel of the leg that a pass uses under an edge-cut, or of the ``other``, which brings sums."""
        leg = SCATTER if (pass_ == FORWARD) is not other else GATHER
        about = ChannelId(self.site, pass_, leg), self.exact, self.needed
        return self.run.channels.channel(*about, covered=self.covered is not None)

    def taken(self, channel: Channel) -> Tensor | None:
        """Return what has come by a channel: waited for now or, without overlap, when it was sent."""
        if self.run.savings.overlap:
            return channel.take(self.run.step)
        return self._arrived.pop(channel.id.leg)

    def _posted(self, channel: Channel) -> None:
        if not self.run.savings.overlap:
            self._arrived[channel.id.leg] = channel.take(self.run.step)

    # Forward

    def post(self, x: Tensor) -> None:
        """Send boundary rows of x [n, F]: for this step, or, delayed, for the graph of a later one."""
        run, rows, channel = self.run, self.run.as_sent(x), self.channel(FORWARD)
        kind = "embeddings" if x.requires_grad else "features"
        if rows is not x:
            self._converted = kernels.memory_of(x), rows
        self._weigh(channel)
        if self.exact or run.policy.sampler is None:
            channel.post(run.step, rows, self.shard.links, kind)
        else:
            for due in channel.dues(run.step):
                channel.post(run.step, rows, run.needed.links_at(due, self.needed), kind, due)
        if run.channels.probing:
            self.fresh = lambda: rows
        if self.covered is not None:
            self._post_sums(self.covered, rows, kind)
        self._posted(channel)

    def _weigh(self, channel: Channel) -> None:
        """Tell owners once how much their rows count here, Σ_i P_ij², where the code of a row depends on it."""
        coding = channel.coding
        if coding is None or not coding.weighs or coding.weights is not None:
            return
        weight = torch.ones(self.shard.num_halo, dtype=torch.float64, device=self.shard.device)
        if self._norm is not None:
            weight = self.shard.halo_squares(self._norm)
        where = Where(self.site, FORWARD, self.run.step, "ids")
        coding.weights = self.shard.links.push(weight, self.run.transport, where).wait()

    def post_narrow(self, late: Late) -> None:
        """Send D(S) Wᵀ of boundary rows, D with the mask of the step at which they are due; make no other rows."""
        assert late.weight is not None, "only narrow rows are made by their owner"
        run, channel, shard, self.narrow = self.run, self.channel(FORWARD), self.covered, late.weight.dtype
        for due in channel.dues(run.step):
            links = run.needed.links_at(due, self.needed) if shard is None else shard.links
            at = links.boundary_rows if shard is None else shard.leaving_rows
            rows = late.weight.new_empty(len(late.rows), len(late.weight))
            rows[at] = late.dropped(at, run.whole.nodes[at], due) @ late.weight.t()
            rows = run.as_sent(rows)
            channel.post(run.step, rows, links, "embeddings", due)
            if shard is not None:
                self._post_sum(shard, rows, "embeddings", due)
        self._posted(channel)

    def _post_sums(self, shard: Covered, rows: Tensor, kind: str) -> None:
        """Make the sums over edges that others lent, and send them; of rows from before dropout, by the mask of the
        step that will read them."""
        if self.mask is None:
            self._post_sum(shard, rows, kind)
            return
        at = shard.lent_rows
        for due in self.channel(FORWARD, other=True).dues(self.run.step):
            dropped = torch.empty_like(rows)
            dropped[at] = self.mask.drop(rows[at], self.run.whole.nodes[at], due)
            self._post_sum(shard, dropped, kind, due)

    def _post_sum(self, shard: Covered, rows: Tensor, kind: str, due: int | None = None) -> None:
        channel = self.channel(FORWARD, other=True)
        sums = channel.outbox(shard.sums.edges.csr.num_rows, rows.shape[1], rows.dtype)
        shard.sum_for_others(self.run.as_rows(rows), self.norm, sums)
        channel.post(self.run.step, sums, shard.sums.links, kind, due)
        self._posted(channel)

    def arrived(self, like: Tensor) -> Tensor | None:
        """Return the halo rows as the channel gives them, [h, F]; None before the first are due.

        ``like`` has the width and dtype of their gradients.
        """
        channel, self.form = self.channel(FORWARD), (like.shape[1], like.dtype)
        taken = self.taken(channel)
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
        if self.covered is not None:
            channel = self.channel(FORWARD, other=True)
            sums = self.taken(channel)
            assert sums is not None, "sums are due when rows are"
            self.covered.sums.add(sums, channel.carried(self.covered.sums.links), out)

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
        if self.covered is not None:
            self._post_gradients_of_sums(self.covered, grad)
        if grad is None:
            return self.no_gradients()
        out = self.outbox(grad.shape[1], grad.dtype)
        rows = self.run.as_rows(grad)
        if rows is not grad:
            self._converted = kernels.memory_of(grad), rows
        self.shard.spread_halo(rows, self.norm, out)
        return out if self.mask is None else self.mask.drop(out, self.shard.halo_nodes, self.run.step, out=out)

    def _post_gradients_of_sums(self, shard: Covered, grad: Tensor | None) -> None:
        """Send the gradients of the sums that came from others: those of my rows, as they are."""
        channel, (width, dtype) = self.channel(BACKWARD, other=True), self.form
        if grad is None:
            grad = torch.zeros(shard.num_inner, width, dtype=dtype, device=shard.device)
        rows, links = shard.sums.gradients(self.run.as_sent(grad))
        channel.post(self.run.step, rows, links, "gradients")
        self._posted(channel)

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
        if not self.exact:
            watch_gradients(run, self.site, rows, self.shard.links)
        self._sent_back = rows.clone() if run.channels.probing else rows
        channel.post(run.step, rows, self.shard.links, "gradients")
        self._posted(channel)

    def add_gradients(self, out: Tensor) -> Tensor:
        """Add the gradients that readers sent of my boundary rows to ``out`` [n, F], in place."""
        run, channel = self.run, self.channel(BACKWARD)
        arrived = self.taken(channel)
        if arrived is not None:
            channel.add(arrived, out)
        run.channels.measure(channel, self._sent_back, self.shard, arrived)
        if self.covered is not None:
            self._add_gradients_of_sums(self.covered, out)
        return out

    def _add_gradients_of_sums(self, shard: Covered, out: Tensor) -> None:
        """Add the gradients of the sums that I made, spread over my rows, to ``out`` [n, F]."""
        channel = self.channel(BACKWARD, other=True)
        sums = self.taken(channel)
        if sums is None or self.mask is None:
            if sums is not None:
                shard.spread_from_others(self.run.as_rows(sums), self.norm, out)
            return
        spread, at = torch.zeros_like(out), shard.lent_rows
        shard.spread_from_others(self.run.as_rows(sums), self.norm, spread)
        out[at] += self.mask.drop(spread[at], self.run.whole.nodes[at], channel.reader.layout_of)

    def narrow_gradients(self, late: Late, home: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients by S and W of D(S) Wᵀ, from its own [n, F] that readers sent of a step gone by."""
        assert late.weight is not None, "only narrow rows are made by their owner"
        reader = self.channel(BACKWARD).reader
        if reader.layout is None:
            return torch.zeros_like(late.rows), torch.zeros_like(late.weight)
        at = reader.layout.boundary_rows if self.covered is None else self.covered.leaving_rows
        of_rows = torch.zeros_like(late.rows)
        nodes, came = self.run.whole.nodes[at], home[at].to(late.weight.dtype)
        of_rows[at] = late.mask.drop(came @ late.weight, nodes, reader.layout_of).to(of_rows.dtype)
        return of_rows, came.t() @ late.dropped(at, nodes, reader.layout_of)

    def as_rows(self, x: Tensor) -> Tensor:
        """Return rows in the dtype in which they are read; once, where the halo's half has done it already."""
        converted, self._converted = self._converted, None
        if converted is not None and converted[0] == kernels.memory_of(x):
            return converted[1]
        return self.run.as_rows(x)
