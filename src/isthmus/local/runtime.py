"""Runtime: the state behind a LocalGraph that lives from step to step, driven by the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from isthmus.comm import Stages, Transport
from isthmus.errors import InputError
from isthmus.features import FixedRows
from isthmus.kernels import HostRows, SparseMatrix
from isthmus.kernels.linear import linear
from isthmus.local.cached_features import CachedFeatures
from isthmus.local.channels import Channels
from isthmus.local.checks import check_forward
from isthmus.local.covers import Covers
from isthmus.local.dropout import Mask
from isthmus.local.ladder import Ladder
from isthmus.local.level import Level
from isthmus.local.loss_scale import LossScale
from isthmus.local.needed import Needed
from isthmus.local.own_rows import over_own_rows
from isthmus.local.policy import Policy
from isthmus.local.savings import Savings
from isthmus.local.watch import Watch
from isthmus.sample import Schedule
from isthmus.shard import Layer, Shard

Rows = TypeVar("Rows", bound=Tensor | SparseMatrix | HostRows)


class Runtime:
    """One worker's shard, its channels, the graphs drawn for its steps, and the rows that it keeps.

    The engine calls `begin` before every forward pass, and `state`, `restore`, `drain` and `close` around a run.
    """

    def __init__(
        self,
        whole: Shard,
        transport: Transport,
        policy: Policy,
        dtype: torch.dtype = torch.float32,
        rows_dtype: torch.dtype | None = None,
        seed: int = 0,
    ):
        self.whole, self.transport, self.asked = whole, transport, policy
        self.dtype, self.rows_dtype, self.seed = dtype, rows_dtype, seed
        self.draws = seed if policy.seed is None else policy.seed
        self.layers: Sequence[Layer] | None = None
        self.declared: tuple[Tensor, float] | None = None  # by `needs_only`
        if policy.controlled and whole.replicated:
            raise InputError("a guard is for parts of an edge-cut: set guard to off, and leave auto out")
        self.ladder = Ladder(policy, self.level_of, policy.controlled and transport.size > 1 and not policy.lossless)
        self.watch = Watch(whole, self.ladder.recipe.policy, transport.rank, self.draws)
        self.fixed = FixedRows()
        self.loss_scale = LossScale() if self.half is torch.float16 else None
        self.exact: Level | None = None  # of exact passes beside those of a recipe without a guard
        self.gradient_error: float | None = None  # of the last step, if it was probed
        self.own_rows: str | None = None  # after the first backward pass: a note about sums over this worker's rows
        self.begin(0, training=False)

    def level_of(self, policy: Policy) -> Level:
        """Make a level; all workers do so at the same time."""
        level = Level(self.whole, self.transport, policy, self.draws, self.dtype)
        if self.declared is not None:
            self._declare(level, *self.declared)
        return level

    @property
    def level(self) -> Level:
        return self.ladder.level

    @property
    def policy(self) -> Policy:
        """The policy in force: the recipe's or, where the controller says so, an exact one."""
        return self.level.policy

    @property
    def channels(self) -> Channels:
        return self.level.channels

    @property
    def schedule(self) -> Schedule:
        return self.level.schedule

    @property
    def needed(self) -> Needed:
        return self.level.needed

    def covers(self, exact: bool) -> Covers | None:
        """Return the covers of aggregations, if they take any; exact ones take the same at all levels."""
        return (self.ladder.last if exact else self.level).covers

    @property
    def cached(self) -> CachedFeatures | None:
        return self.level.cached

    @property
    def masks_late(self) -> bool:
        """Whether readers apply dropout themselves, because rows may be read at another step than they were sent at.

        Replicas always do, after their rows are the same."""
        return self.row_stages.mixes_steps and not self.whole.replicated

    @property
    def row_stages(self) -> Stages:
        """The stages of the rows that readers read."""
        return self.policy.row_stages

    @property
    def half(self) -> torch.dtype | None:
        """The dtype in which rows are aggregated and multiplied by weights while a model trains, if not their own."""
        return self.level.half

    @property
    def savings(self) -> Savings:
        return self.policy.savings

    # A pass

    def begin(
        self,
        step: int,
        training: bool = True,
        probe: bool = False,
        declared: bool = False,
        layers: Sequence[Layer] | None = None,
        beside: bool = False,
    ) -> None:
        """Begin a forward pass: draw its graph, if it trains; count sites from 0 again.

        Outside training the exchange is exact. With ``probe``, the rows that the policy gives are compared with fresh
        ones (`Channels.errors`). ``declared``: only the results that `needs_only` named are read. ``layers``: those of
        a mini-batch, whose k-th one site k reads. ``beside``: an exact pass before that of the recipe (`exact_pass`).
        """
        self.step, self.training, self._sites, self._dropouts = step, training, 0, 0
        self._sums, self.masks = 0, 0  # masks: dropouts of this pass that drop something
        self.dropped = WeakTensorKeyDictionary()  # how rows of this pass were dropped out (`Dropped`), where it matters
        self.dropped_sparse: tuple[SparseMatrix, int, float] | None = None  # sparse rows, with stream and p
        self.sampled = WeakTensorKeyDictionary()  # the same of watched rows, where only these have to be known
        self.ties: list[Tensor] = []  # numbers, one per exchange, that the step ties to its loss
        lossy = training and layers is None and not beside
        if lossy:
            self.ladder.choose(self.watch, self.transport.ledger)
        self.watch.begin(step, lossy and self.transport.size > 1 and not self.whole.replicated)
        for level in (*self.ladder.made.values(), self.level):
            level.needed.begin(step, declared)
        self.channels.begin(step, probe and training)
        self.whole.weights_read |= any(layer.weights_read for layer in self.layers or ())
        self.layers, self.drawn = layers, self.whole
        if training and layers is None:
            self.schedule.begin(step)
            self.drawn = self.schedule.at(step)

    def figures(self) -> dict[str, float]:
        """Return figures of this step, by name, that the step sums over the workers and brings back (`observe`)."""
        return self.watch.figures() | self.ladder.figures(self.transport.ledger)

    def observe(self, told: Mapping[str, float]) -> None:
        """Take figures of a step, summed over the workers: selectors and the controller decide by them."""
        self.channels.observe(told)
        self.watch.observe(told)
        self.ladder.observe(self.watch.telling, told)

    def line(self) -> dict[str, Any]:
        """Return what the record of a step says of errors and of the controller."""
        return ({"row_error": self.watch.errors} if self.watch.errors else {}) | self.ladder.line()

    def next_site(self) -> int:
        """Return the number of the next exchange: the k-th one of a forward pass is site k."""
        check_forward()
        self._sites += 1
        if self.layers is not None:
            if self._sites > len(self.layers):
                raise InputError(
                    f"the model aggregates more than {len(self.layers)} times, but its batches have as many layers as "
                    "--fanout has numbers, or as --layers says: give one for each convolution"
                )
            self.drawn = self.layers[self._sites - 1]
        return self._sites - 1

    @property
    def next_layer(self) -> Layer | None:
        """The layer of a mini-batch that the next exchange reads."""
        return self.layers[self._sites] if self.layers is not None and self._sites < len(self.layers) else None

    @property
    def num_rows(self) -> int:
        """The number of rows that every tensor of the model has at this point of the pass."""
        if self.layers is None:
            return self.whole.num_inner
        return self.drawn.num_inner if self._sites else self.layers[0].inner.num_cols

    @property
    def nodes(self) -> Tensor:
        """The original ids of the nodes whose rows the model has at this point of the pass, int64."""
        return self.whole.nodes if self.layers is None else self.layers[0].nodes[: self.num_rows]

    @property
    def degree(self) -> Tensor:
        """The degrees of these nodes in the whole graph."""
        return self.whole.degree if self.layers is None else self.layers[0].degree[: self.num_rows]

    def next_sum(self) -> int:
        """Return the number of the next sum over the rows of all workers (`local.all_nodes`)."""
        check_forward()
        if self.whole.replicated or self.policy.isolated:
            raise InputError(
                "the model asks for figures of all nodes (batch norms do), and under a vertex-cut nodes have several "
                "rows: take layer norms, or parts of an edge-cut (isthmus partition --cut edge)"
            )
        self._sums += 1
        return self._sums - 1

    def next_mask(self, p: float) -> Mask:
        """Return the masks of the next dropout: the k-th one of a forward pass has masks of its own."""
        check_forward()
        self._dropouts, self.masks = self._dropouts + 1, self.masks + (p > 0)
        return Mask(self.seed, self._dropouts, p)

    def backward(self, loss: Tensor, gradient: Tensor | None = None) -> None:
        """Run backward from the loss through every exchange of the pass.

        That includes exchanges that this worker's loss does not read: other workers wait for their gradients.
        """
        if self.own_rows is None:
            alone = self.transport.size == 1 or self.layers is not None
            self.own_rows = "" if alone else over_own_rows(loss, self.num_rows) or ""
        ties = self.ties
        self.ties = []
        if self.loss_scale is not None:
            gradient = self.loss_scale.gradient(loss, gradient)
        torch.autograd.backward([loss, *ties], [gradient, *[None] * len(ties)])

    # Rows

    def fix(self, x: Rows) -> Rows:
        """Declare rows that never change (the input features); return them."""
        self.fixed = FixedRows(x)
        return x

    def is_fixed(self, x: Tensor | HostRows) -> bool:
        """Return whether x never changes, so that results computed from it alone can be kept."""
        return self.fixed.is_of(x) and (self.savings.aggregate_once or self.cached is not None)

    def needs_only(self, rows: Tensor, share: float) -> None:
        """Declare the rows (int64) whose results are read when a model trains, a share of all workers' rows.

        Every worker does so at the same time, and once.
        """
        self.declared = rows, share
        for level in self.ladder.made.values():
            self._declare(level, rows, share)

    def _declare(self, level: Level, rows: Tensor, share: float) -> None:
        level.reads(share)
        if level.policy.savings.read_rows:
            level.declare(rows, share)

    @property
    def keeps_sparse(self) -> bool:
        """Whether sparse features may stay sparse: those of the halo are kept, none are exchanged at every step."""
        kept = self.savings.aggregate_once and self.savings.narrow_side and self.cached is None
        return kept and not (self.whole.replicated or self.whole.weighted)

    @property
    def keeps_on_host(self) -> bool:
        """Whether features may stay on the host: they are aggregated once, and not exchanged at every step."""
        return self.savings.aggregate_once and self.cached is None and not self.whole.replicated

    def as_rows(self, x: Tensor) -> Tensor:
        """Return rows in the dtype in which they are read: as they are, or in half of it."""
        if self.rows_dtype is None and self.half and self.training and not self.fixed.holds(x):
            return x.to(self.half)  # but not input features: results computed from them are kept for evaluations too
        return self.as_sent(x)

    def as_sent(self, x: Tensor) -> Tensor:
        """Return rows in the dtype in which they are sent, before they are encoded."""
        return x if self.rows_dtype is None else x.to(self.rows_dtype)

    def linear(
        self,
        blocks: Tensor | SparseMatrix | HostRows | tuple[Tensor | HostRows, ...],
        weight: Tensor,
        bias: Tensor | None = None,
        relu: bool = False,
    ) -> Tensor:
        """Return [X_1 | X_2 | …] Wᵀ (+ b), or relu of it, in the dtype it is computed in (`half` in training)."""
        half = self.half if self.training else None
        if half is not None and isinstance(blocks, tuple):
            blocks = self.fixed.side_by_side(blocks, half)
        return linear(blocks, weight, bias, half, relu)

    # Between steps

    @property
    def stateless(self) -> bool:
        """Whether nothing but the weights is carried from one step to the next."""
        return self.asked.stateless

    def state(self) -> dict[str, Tensor]:
        """Return everything that is carried from step to step besides the weights, by name."""
        recipe = self.ladder.recipe
        pieces = {"schedule": recipe.schedule.state(), "channels": recipe.channels.state()}
        pieces |= {"watch": self.watch.state(), "guard": self.ladder.state()}
        if recipe.cached is not None:
            pieces["features"] = recipe.cached.state()
        return {f"{piece}.{name}": tensor for piece, state in pieces.items() for name, tensor in state.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Put a state back."""
        names = "schedule", "channels", "features", "watch", "guard"
        pieces: dict[str, dict[str, Tensor]] = {name: {} for name in names}
        for name, tensor in state.items():
            piece, rest = name.split(".", 1)
            if piece not in pieces:
                raise InputError(
                    f"the checkpoint holds {name}, of another version of isthmus: resume with that version"
                )
            pieces[piece][rest] = tensor.to(self.whole.device)
        self.ladder.restore(pieces["guard"])
        recipe = self.ladder.recipe
        recipe.schedule.restore(pieces["schedule"])
        recipe.restore(pieces["channels"])
        self.watch.restore(pieces["watch"])
        if recipe.cached is not None:
            recipe.cached.restore(pieces["features"])

    def drain(self) -> None:
        """Wait for every transfer and every draw that is under way."""
        for level in self.ladder.made.values():
            level.drain()

    def close(self) -> None:
        """Stop everything that runs, without waiting for other workers: for a run that ends in the middle of a step."""
        for level in self.ladder.made.values():
            level.schedule.close()
