"""The policy: everything that a recipe decides about a worker's exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from isthmus.comm import BACKWARD, FORWARD, GATHER, SCATTER, AsIs, Codec, Stages
from isthmus.errors import InputError
from isthmus.features import CachePolicy
from isthmus.local.controller import Guard
from isthmus.local.savings import Savings
from isthmus.minibatch import BatchPolicy
from isthmus.sample import LastLayer, Sampler


@dataclass(frozen=True)
class Policy:
    """The graph drawn per step, the stages of every channel, and the exact savings taken.

    The default is exact training.
    """

    savings: Savings = field(default_factory=Savings)
    forward: Stages = field(default_factory=Stages)
    """The stages of rows, on both legs."""
    backward: Stages = field(default_factory=Stages)
    """The stages of gradients, on both legs."""
    sampler: Sampler | None = None
    seed: int | None = None
    """The seed of all draws; None is the seed of the run."""
    cache: CachePolicy | None = None
    """The cache of halo nodes' input features, which are fetched whenever a step reads rows that it does not hold.
    None: they are fetched once (or, without that saving, like all other rows)."""
    weights: Codec = field(default_factory=AsIs)
    """The code of the weights' gradients when the workers sum them."""
    precision: str = "fp32"
    """The precision in which rows are aggregated and multiplied by weights in training: fp32; bf16 or fp16, with sums
    in fp32; or auto, bf16 where the device has instructions for it. In fp16 the loss is scaled (`local.loss_scale`)."""
    last_layer: LastLayer | None = None
    """The rule that draws inner neighbours in the last layer for the rows that the loss reads, where they are few."""
    legs: Mapping[tuple[str, str], Stages] = field(default_factory=dict)
    """The stages by (pass, leg), where they differ from those of the whole pass."""

    batches: BatchPolicy | None = None
    """How mini-batches are drawn and fed; None: every step passes over the full graph."""

    replicas: bool = False
    """Whether it is made for the replicas of a vertex-cut: both legs are used, one after the other."""

    isolated: bool = False
    """Whether each worker trains on its own edges of a vertex-cut alone, and replicas count by their share of edges."""

    cover_asked: bool = False
    """Whether covers were asked for by name, so that they are taken whatever they spare."""

    guard: Guard | None = None
    """The rule by which rows are exact while that is safer."""

    rungs: tuple[Rung, ...] = ()
    """The policies of which one is chosen by the link, least lossy first; none: this policy is the only one."""

    def __post_init__(self) -> None:
        self._check_guard()
        for stages in self.every_stages:
            if self.sampler is not None and not stages.merge.suits_drawn:
                raise InputError("a drawn graph reads only rows drawn for it: nothing old can be kept or smoothed")
            if self.sampler is not None and stages.ring:
                raise InputError("whole blocks round a ring leave nothing to draw: set rate to 1")
            if self.sampler is not None and stages.encode.varies:
                raise InputError("rows whose code is chosen one by one are all sent: leave sampler out")
            if self.sampler is not None and stages.select.skips:
                raise InputError("a drawn graph needs the rows that were drawn for it: none of them can be skipped")
        if len({stages.ring for stages in self.every_stages}) > 1:
            raise InputError("whole blocks go round a ring in both passes, or in none")
        if self.precision == "fp16" and not all(self.stages(BACKWARD, leg).stateless for leg in (SCATTER, GATHER)):
            raise InputError(
                "precision=fp16 scales the loss of each step, and this recipe keeps earlier gradients: take bf16"
            )
        if any(self.stages(FORWARD, leg).clip for leg in (SCATTER, GATHER)):
            raise InputError("only gradients are clipped: leave clip out of the features' stages")
        if self.cache is not None and self.forward.ring:
            raise InputError("whole blocks round a ring leave nothing to cache: set cache to none")

    def _check_guard(self) -> None:
        if not self.controlled:
            return
        if self.cache is not None:
            raise InputError(
                "exact steps of a guarded run, or one with auto, read all halo features: set guard to off with "
                "cache_rows, and leave auto out"
            )
        if self.replicas or self.batches is not None or self.forward.ring:
            raise InputError("a guard is for rows that cross an edge-cut: set guard to off")

    def with_cut(self, asked: str | None, written: str) -> Policy:
        """Return the policy for parts with the cut ``written``, trained under the cut that was asked for, if any."""
        if (asked == "vertex") != (written == "vertex") and asked is not None:
            raise InputError(
                f"these parts were written for the {written} cut, not {asked}: leave --cut out, or cut the graph again "
                f"with `isthmus partition --cut {asked}`"
            )
        if self.replicas and written != "vertex":
            raise InputError(
                f"this recipe is for vertex-cuts, and these parts have the {written} cut: cut the graph again with "
                "`isthmus partition --cut vertex --method ebv`"
            )
        if asked in (None, "vertex"):
            return self
        chosen = self._with_cover(asked == "cover")
        rungs = tuple(replace(rung, policy=rung.policy._with_cover(asked == "cover")) for rung in self.rungs)
        if asked == "cover" and not chosen.covers:
            raise InputError(
                "the cover cut sends sums, for rows that are fresh or late and sent as they are: this recipe keeps, "
                "codes, draws or skips rows; leave --cut out"
            )
        return replace(chosen, rungs=rungs)

    def _with_cover(self, cover: bool) -> Policy:
        return replace(self, savings=replace(self.savings, cover=cover), cover_asked=cover)

    def stages(self, pass_: str, leg: str) -> Stages:
        """Return the stages of the channels of that pass and leg."""
        of_leg = self.legs.get((pass_, leg))
        return of_leg if of_leg is not None else self.forward if pass_ == FORWARD else self.backward

    @property
    def row_stages(self) -> Stages:
        """The stages of the rows that readers read."""
        return self.stages(FORWARD, SCATTER)

    @property
    def lossless(self) -> bool:
        """Whether all rows are read fresh and in full."""
        fresh = all(stages.encode.as_is and not stages.mixes_steps for stages in self.every_stages)
        return fresh and self.sampler is None and not any(stages.clip for stages in self.every_stages)

    @property
    def controlled(self) -> bool:
        """Whether a controller chooses how lossy each step is."""
        return self.guard is not None or bool(self.rungs)

    @property
    def unguarded(self) -> Policy:
        """The policy of the steps that a guard holds to be safe."""
        return replace(self, guard=None, rungs=())

    @property
    def ladder(self) -> tuple[Rung, ...]:
        """The policies that lossy steps can have, least lossy first."""
        return self.rungs or (Rung("lossy", 1.0, self.unguarded),)

    @property
    def exact(self) -> Policy:
        """The policy of the other steps: the same savings, exact rows, fp32 unless another precision was named."""
        precision = "fp32" if self.precision == "auto" else self.precision
        return Policy(self.savings, seed=self.seed, precision=precision, cover_asked=self.cover_asked)

    @property
    def every_stages(self) -> list[Stages]:
        """The stages of every pass and leg."""
        return [self.stages(pass_, leg) for pass_ in (FORWARD, BACKWARD) for leg in (SCATTER, GATHER)]

    @property
    def weighs_all_rows(self) -> bool:
        """Whether the send decision depends on all rows jointly, so that none of them can be left out."""
        return any(stages.select.jointly for stages in self.every_stages)

    @property
    def caches(self) -> bool:
        """Whether senders hold back rows by comparing them with what readers hold, so that shares are recorded."""
        return self.replicas and any(stages.select.compares for stages in self.every_stages)

    @property
    def observes(self) -> bool:
        """Whether a selector uses the share of training nodes that the model gets right."""
        return any(stages.select.observes for stages in self.every_stages)

    @property
    def covers(self) -> bool:
        """Whether aggregations take the cover cut: rows are fresh, or late by a fixed number of steps, and read as
        they come."""
        plain = all(stages.plain and not stages.encode.predicts for stages in self.every_stages)
        odd = any(stages.select.skips or stages.clip or stages.ring for stages in self.every_stages)
        return self.savings.cover and self.sampler is None and self.cache is None and plain and not odd

    @property
    def relays(self) -> bool:
        """Whether rows cross between hosts once: the links of all steps are the same, and no choice or clipping is
        about all that a worker sends."""
        drawn = self.sampler is not None or self.batches is not None or self.cache is not None
        stages = self.every_stages
        odd = self.weighs_all_rows or any(one.clip or one.ring or one.encode.varies for one in stages)
        return self.savings.relay and not drawn and not odd

    @property
    def stateless(self) -> bool:
        """Whether nothing but the weights is carried from one step to the next."""
        sized = self.sampler is not None and self.sampler.refresh > 0
        return (
            all(stages.stateless for stages in self.every_stages) and not sized and not (self.cache or self.controlled)
        )


@dataclass(frozen=True)
class Rung:
    """One of the policies that a controller chooses from; ``share``: what it sends of what the first of them does."""

    name: str
    share: float
    policy: Policy
