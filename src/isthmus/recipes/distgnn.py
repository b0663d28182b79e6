"""DistGNN: a vertex-cut whose partial sums are used some steps late, so that transfers hide behind computation."""

from isthmus.comm import Stages
from isthmus.local import Policy
from isthmus.recipes.base import Option, Recipe, Settings
from isthmus.recipes.common import AS_PUBLISHED, CODED, INHERITED, coding, savings


def _policy(settings: Settings) -> Policy:
    features, gradients = coding(settings)
    delay = settings["staleness"]
    late = {"delay": delay, "warm": settings["start"] != AS_PUBLISHED or not delay}
    forward, backward = Stages(**features, **late), Stages(**gradients, **late)
    return Policy(savings(settings), forward, backward, seed=settings["seed"], replicas=True)


DISTGNN = Recipe(
    name="distgnn",
    summary="partial sums of mirrors, and the totals that masters return, are used some steps late",
    paper="Md et al.: DistGNN (SC 2021), algs. cd-0 and cd-r",
    make=_policy,
    options={
        "staleness": Option(5, "steps r between sending and use, on each leg; 0 is cd-0, which is exact"),
        "start": Option(
            "warm",
            "warm: the first step waits for fresh sums; as-published: what is here has to do until the first are due",
            ("warm", AS_PUBLISHED),
        ),
        **INHERITED,
        **CODED,
    },
    notes="All rows are sent at every step; the paper sends an r-th of them at each, and they are up to 2r steps old.",
    method="hdrf",
    cut="vertex",
)
