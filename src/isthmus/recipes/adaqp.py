"""AdaQP: each row has as many bits as its error deserves, under a budget for all of them."""

from isthmus.comm import AdaptiveBits, Stages
from isthmus.local import Policy
from isthmus.recipes.base import Option, Recipe, Settings
from isthmus.recipes.common import CODED, GUARDED, INHERITED, savings


def _policy(settings: Settings) -> Policy:
    stages = Stages()
    if settings["budget"] != 32:
        rounding = settings["rounding"] == "stochastic"
        stages = Stages(encode=AdaptiveBits(settings["budget"], settings["reassign"], rounding))
    return Policy(savings(settings), forward=stages, backward=stages, seed=settings["seed"])


ADAQP = Recipe(
    name="adaqp",
    summary="2, 4 or 8 bits per row, for the least variance under a budget of bits",
    paper="Wan et al.: AdaQP (MLSys 2023)",
    make=_policy,
    options={
        "budget": Option(4.0, "bits per value on average, between 2 and 8; 32: rows are sent as they are"),
        "reassign": Option(50, "steps between two choices of the rows' bits, by the ranges that rows had since"),
        "rounding": Option("stochastic", CODED["rounding"].help, CODED["rounding"].choices),
        **INHERITED,
        **{name: CODED[name] for name in ("bits_weights", "precision", "seed")},
        **GUARDED,
    },
    notes="The paper weighs variance against the time of the slowest link; here the bytes are given.",
)
