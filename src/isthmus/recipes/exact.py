"""The default recipe: full-graph training, equal to one process up to rounding, with every exact saving."""

from isthmus.comm import Stages
from isthmus.local import Policy, Savings
from isthmus.recipes.base import Recipe, Settings
from isthmus.recipes.common import CODED, SAMPLED, coding, sampler


def _policy(settings: Settings) -> Policy:
    features, gradients = coding(settings)
    return Policy(Savings(), Stages(**features), Stages(**gradients), sampler(settings), settings["seed"])


EXACT = Recipe(
    name="exact",
    summary="whole halo, every step, fresh; narrow side exchanged, input aggregated once, transfer overlapped",
    paper="PSC-GCN eqs. 1–9, BNS-GCN sec. 3.1, with the savings that change nothing",
    make=_policy,
    options={**SAMPLED, **CODED},
    notes="Exact as long as nothing is drawn and bits is 32.",
)
