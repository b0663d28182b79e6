"""Partition-parallel training as the papers' baselines run it: the same numbers as exact, none of its savings."""

from isthmus.comm import Stages
from isthmus.local import Policy
from isthmus.recipes.base import Recipe, Settings
from isthmus.recipes.common import CODED, NO_SAVINGS, SAMPLED, coding, sampler


def _policy(settings: Settings) -> Policy:
    features, gradients = coding(settings)
    return Policy(NO_SAVINGS, Stages(**features), Stages(**gradients), sampler(settings), settings["seed"])


VANILLA = Recipe(
    name="vanilla",
    summary="whole halo of every layer's input, every step, fresh; nothing saved, nothing overlapped",
    paper="PSC-GCN eqs. 1–9, BNS-GCN sec. 3.1",
    make=_policy,
    options={**SAMPLED, **CODED},
    notes="With bits=8, 4 or 2 it is the baseline of quantised exchange (AdaQP).",
)
