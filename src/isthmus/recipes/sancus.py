"""SANCUS: a worker skips sending while what its readers hold is fresh enough; and SkipG, the same for gradients."""

from isthmus.comm import Clip, Every, Gap, Keep, Stages
from isthmus.comm.channel.select import Select
from isthmus.local import Policy
from isthmus.recipes.base import Option, Recipe, Settings
from isthmus.recipes.common import AS_PUBLISHED, CODED, GUARDED, INHERITED, coding, savings

_PAPER = "Peng et al.: SANCUS (VLDB 2022)"
_CLIPPED = {
    "clip": Option(1.0, "norm of all gradients that are sent for a layer, over all workers; 0: no clipping"),
    "clip_rule": Option(
        "root", "a worker's share is clip·n^-1/2; as-published: clip·n^+1/2, which never clips", ("root", AS_PUBLISHED)
    ),
}


def _skip_features(settings: Settings, select: Select) -> Policy:
    features, gradients = coding(settings)
    forward = Stages(**features, select=select, merge=Keep())
    return Policy(savings(settings), forward, Stages(**gradients, clip=_clip(settings)), seed=settings["seed"])


def _skip_gradients(settings: Settings) -> Policy:
    features, gradients = coding(settings)
    backward = Stages(**gradients, select=Every(settings["bound"]), merge=Keep(), clip=_clip(settings))
    return Policy(savings(settings), Stages(**features), backward, seed=settings["seed"])


def _clip(settings: Settings) -> Clip | None:
    power = 0.5 if settings["clip_rule"] == AS_PUBLISHED else -0.5
    return Clip(settings["clip"], power) if settings["clip"] else None


SANCUS_E = Recipe(
    name="sancus-e",
    summary="all workers send every bound + 1 steps; between, readers use what they have",
    paper=_PAPER + ", alg. 4 (epoch-fixed staleness)",
    make=lambda settings: _skip_features(settings, Every(settings["bound"])),
    options={
        "bound": Option(1, "steps that are skipped between two sends; 0 is exact"),
        **_CLIPPED,
        **INHERITED,
        **CODED,
        **GUARDED,
    },
    notes="The printed definition says every bound steps, its algorithm and example every bound + 1: so it is here.",
)
SANCUS_A = Recipe(
    name="sancus-a",
    summary="as sancus-e, but workers take turns, so that traffic is even and readers hold rows of mixed age",
    paper=_PAPER + ", alg. 5 (epoch-adaptive staleness)",
    make=lambda settings: _skip_features(settings, Every(settings["bound"], staggered=True)),
    options={
        "bound": Option(1, "largest age of a row in steps; 0 is exact"),
        **_CLIPPED,
        **INHERITED,
        **CODED,
        **GUARDED,
    },
    notes="In lock-step all versions agree, and alg. 5 is alg. 4 with staggered phases (fig. 14b).",
)
SANCUS_H = Recipe(
    name="sancus-h",
    summary="a worker sends a layer's rows when they have moved by more than bound, relative to what its readers hold",
    paper=_PAPER + ", alg. 6 (variation gap)",
    make=lambda settings: _skip_features(settings, Gap(settings["bound"])),
    options={
        "bound": Option(0.02, "relative change, in the Frobenius norm, that is tolerated; 0 is exact"),
        **_CLIPPED,
        **INHERITED,
        **CODED,
        **GUARDED,
    },
    notes="The norm is read as relative: as absolute norms the published bounds (0.01 to 0.03) make no sense. "
    "Flags go ahead of the rows, so that nobody waits for rows that will not come.",
)
SKIP_G = Recipe(
    name="skip-g",
    summary="fresh rows every step; gradients every bound + 1 steps, and the old ones between",
    paper=_PAPER + ", baseline SkipG (bounded gradient staleness)",
    make=_skip_gradients,
    options={
        "bound": Option(1, "steps that are skipped between two sends; 0 is exact"),
        **_CLIPPED,
        **INHERITED,
        **CODED,
    },
)
