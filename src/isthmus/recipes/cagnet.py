"""CAGNET, one-dimensional: every worker's whole block goes round a ring, whoever reads it."""

from isthmus.comm import Stages
from isthmus.local import Policy
from isthmus.recipes.base import Recipe, Settings
from isthmus.recipes.common import CODED, NO_SAVINGS, coding


def _policy(settings: Settings) -> Policy:
    features, gradients = coding(settings)
    return Policy(NO_SAVINGS, Stages(**features, ring=True), Stages(**gradients, ring=True), seed=settings["seed"])


CAGNET = Recipe(
    name="cagnet",
    summary="whole blocks of rows by ring broadcast, every step, fresh; gradients by ring reduce-scatter",
    paper="Tripathy et al.: CAGNET (SC 2020), 1D block rows",
    make=_policy,
    options=CODED,
    notes="The volume is nodes × width per layer and worker, however small the boundary. Gradients that are coded are "
    "coded again at each hop of their sum.",
    method="blocks",
)
