"""This library's own recipe: the halo rows that matter most, as coded differences, one step old."""

from isthmus.comm import Add, Replace, Stages
from isthmus.errors import InputError
from isthmus.local import Policy, Savings
from isthmus.outside import is_outside
from isthmus.recipes.base import Option, Recipe, Settings
from isthmus.recipes.common import CACHED, CODED, SAMPLED, SAMPLERS, cache, coding, guarded, noise, sampler
from isthmus.sample import LastLayer

_AS_RATE = -1.0


def _rung(sampler: str = "optimal-boundary", rate: float = 0.1, bits: int = 8) -> Settings:
    coded = bits < 32
    chosen = {"staleness": 1, "sampler": sampler, "rate": rate, "bits": bits, "delta": coded}
    return {**chosen, "bits_weights": 8 if coded else 32, "precision": "auto" if coded else "fp32"}


# In order of their loss: freshness; bits, which differences compensate; rows; more bits.
_LADDER = [
    (1.0, _rung("none", 1.0, 32)),
    (0.27, _rung("none", 1.0)),
    (0.135, _rung(rate=0.5)),
    (0.068, _rung(rate=0.25)),
    (0.027, _rung()),
    (0.016, _rung(bits=4)),
]


def _policy(settings: Settings) -> Policy:
    features, gradients = coding(settings)
    if settings["delta"] and features["encode"].as_is:
        raise InputError("a difference in full is as long as the row itself: set bits below 32, or delta to false")
    pipelined = {"delay": settings["staleness"]}
    # Differences from what a reader holds leave no error behind, so features need no feedback of their own.
    features["feedback"] = features["feedback"] and not settings["delta"]
    return Policy(
        Savings(),
        Stages(**features, **pipelined, merge=Add() if settings["delta"] else Replace()),
        Stages(**gradients, **pipelined),
        sampler(settings, asked_for=False),
        settings["seed"],
        cache(settings),
        last_layer=_last_layer(settings),
    )


def _last_layer(settings: Settings) -> LastLayer | None:
    rate, both = settings["last_rate"], settings["sampler"] in ("independent", "coupled")
    if rate == _AS_RATE and is_outside(settings["sampler"]):
        return None  # it may draw inner neighbours, too
    if both and rate != _AS_RATE:
        raise InputError(
            f"sampler {settings['sampler']} draws inner neighbours in every layer: last_rate is not for it"
        )
    rate = settings["rate"] if rate == _AS_RATE else rate
    return None if both or rate == 1 else LastLayer(rate, noise=noise(settings))


ISTHMUS = Recipe(
    name="isthmus",
    summary="halo rows drawn for least variance, as coded differences, one step old; every exact saving",
    paper="this library: BNS-GCN's idea with optimal probabilities, PipeGCN's pipeline, CDFGNN's differences",
    make=_policy,
    options={
        "staleness": Option(1, "steps between sending and use; 0 waits for fresh rows"),
        "sampler": Option("optimal-boundary", "sampler of halo rows: the same choice as in exact", SAMPLERS, True),
        "rate": Option(0.1, SAMPLED["rate"].help),
        "refresh": SAMPLED["refresh"],
        "last_rate": Option(
            _AS_RATE,
            "share of its worker's own neighbours (six at least) that a training node reads in the last layer, where "
            "at most a quarter of the nodes are training nodes: the layer before makes only their rows; 1: all; "
            "-1: as rate",
        ),
        "delta": Option(True, "features are sent as differences against what the reader holds"),
        "auto": Option(
            False, "measure the link while training, and choose the options above and bits: no more loss than needed"
        ),
        **guarded("on"),
        **CACHED,
        **CODED,
        "bits": Option(8, CODED["bits"].help, CODED["bits"].choices),
        "bits_weights": Option(8, CODED["bits_weights"].help, CODED["bits_weights"].choices),
        "precision": Option("auto", CODED["precision"].help, CODED["precision"].choices),
    },
    notes="Readers keep one copy of the halo rows of every layer, owners what each reader holds of them.",
    objective="vol",
    ladder=_LADDER,
)
