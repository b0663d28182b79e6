"""PSC-GCN: pipelined training on graphs sampled for small variance and little communication."""

from isthmus.comm import Stages
from isthmus.local import Policy
from isthmus.recipes.base import Option, Recipe, Settings
from isthmus.recipes.common import AS_PUBLISHED, CACHED, CODED, GUARDED, INHERITED, cache, coding, noise, savings
from isthmus.sample import Neighbours


def _policy(settings: Settings) -> Policy:
    features, gradients = coding(settings)
    pipelined = {"delay": settings["staleness"], "warm": settings["start"] != AS_PUBLISHED}
    sampler = Neighbours(
        settings["rate"],
        settings["refresh"],
        settings["inner_weight"],
        settings["sampler"] == "coupled",
        settings["estimator"],
        settings["least"],
        noise(settings),
    )
    return Policy(
        savings(settings),
        Stages(**features, **pipelined),
        Stages(**gradients, **pipelined),
        None if settings["rate"] == 1 else sampler,
        settings["seed"],
        cache(settings),
    )


PSC_GCN = Recipe(
    name="psc-gcn",
    summary="a share of every node's neighbours, drawn for small variance; their rows and gradients some steps old",
    paper="PSC-GCN, algs. 1 and 2, eqs. 14–19",
    make=_policy,
    options={
        "staleness": Option(2, "steps between sending and use; 0 waits for fresh rows"),
        "rate": Option(0.1, "share ε of its neighbours that a node reads; 1 reads all"),
        "least": Option(6, "neighbours that a node reads at least, all if it has fewer; 0: the paper"),
        "sampler": Option(
            "independent",
            "edges one by one (the paper), or coupled: those of a halo row together, far fewer rows fetched",
            ("independent", "coupled"),
        ),
        "inner_weight": Option(1.1, "a_j of inner neighbours (1 for halo): above 1 prefers rows that are at hand"),
        "refresh": Option(20, "steps between refreshes of the probabilities"),
        "estimator": Option(
            "horvitz-thompson",
            "kept edges count 1/p (the paper), or self-normalised: neighbours / kept (its code; biased)",
            ("horvitz-thompson", "self-normalised"),
        ),
        "start": Option(
            "warm", "warm: the first step waits for fresh rows; as-published: zeros", ("warm", AS_PUBLISHED)
        ),
        **GUARDED,
        **CACHED,
        **INHERITED,
        **CODED,
    },
    notes="Budgets ε|N_i| are not rounded; self loops always stay. Readers tell owners which rows they drew, one bit "
    "per row; at a refresh owners tell readers the size of their rows, one number each.",
)
