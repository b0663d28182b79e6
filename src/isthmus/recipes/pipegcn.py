"""PipeGCN: uses rows and gradients of an earlier step, so that transfers hide behind computation."""

from isthmus.comm import Merge, Replace, Smooth, Stages
from isthmus.errors import InputError
from isthmus.local import Policy
from isthmus.recipes.base import Option, Recipe, Settings
from isthmus.recipes.common import AS_PUBLISHED, CODED, GUARDED, INHERITED, SAMPLED, coding, sampler, savings


def _policy(settings: Settings) -> Policy:
    features, gradients = coding(settings)
    from_zero = settings["smooth_start"] == AS_PUBLISHED
    if from_zero and not settings["smooth_features"] and not settings["smooth_gradients"]:
        raise InputError("smooth_start is about smoothing: set smooth_features or smooth_gradients too")
    pipelined = {"delay": settings["staleness"], "warm": settings["start"] != AS_PUBLISHED}
    return Policy(
        savings(settings),
        Stages(**features, **pipelined, merge=_merge(settings["smooth_features"], from_zero)),
        Stages(**gradients, **pipelined, merge=_merge(settings["smooth_gradients"], from_zero)),
        sampler=sampler(settings),
        seed=settings["seed"],
    )


def _merge(decay: float, from_zero: bool) -> Merge:
    return Smooth(decay, from_zero) if decay else Replace()


PIPEGCN = Recipe(
    name="pipegcn",
    summary="rows and gradients of the step before; their transfer runs beside the computing; smoothed if asked",
    paper="Wan et al.: PipeGCN (ICLR 2022), alg. 1 and sec. 3.4",
    make=_policy,
    options={
        "staleness": Option(1, "steps between sending and use; 0 is exact"),
        "smooth_features": Option(0.0, "decay γ of the moving average of features; 0: none; the paper's -F: 0.95"),
        "smooth_gradients": Option(0.0, "decay γ of the moving average of gradients; 0: none; the paper's -G: 0.95"),
        "start": Option(
            "warm", "warm: the first step waits for fresh rows; as-published: zeros", ("warm", AS_PUBLISHED)
        ),
        "smooth_start": Option(
            "first", "the average begins with the first arrival; as-published: at zero", ("first", AS_PUBLISHED)
        ),
        **GUARDED,
        **SAMPLED,
        **INHERITED,
        **CODED,
    },
    objective="vol",
    notes="Own rows are always fresh; dropout comes after the exchange. As published, the average is 95 % too small "
    "after one arrival and 10 % after 45.",
)
