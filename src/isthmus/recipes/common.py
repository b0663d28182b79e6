"""Options that every recipe has, and the stages of channels that they stand for."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

from isthmus.comm import Stages, codec
from isthmus.errors import InputError
from isthmus.features import POLICIES, CachePolicy
from isthmus.local import Policy, Savings
from isthmus.minibatch import BatchPolicy
from isthmus.outside import imported, is_outside
from isthmus.recipes.base import Option, Settings
from isthmus.sample import Boundary, Neighbours, OptimalBoundary, Sampler

BITS = (32, 16, "bf16", "fp16", 8, 4, 2)
AS_PUBLISHED = "as-published"

CODED = {
    "bits": Option(32, "bits per value on the wire: 32 (as is), 16 = bf16, fp16, 8, 4 or 2", BITS),
    "bits_gradients": Option("as bits", "the same for gradients, if they should differ", ("as bits", *BITS)),
    "bits_weights": Option(
        32,
        "the same for the gradients of the weights when workers sum them; 8: rounded at random",
        (32, 16, "bf16", "fp16", 8),
    ),
    "precision": Option(
        "fp32",
        "precision of rows and products in training: fp32, bf16 or fp16 (sums in fp32), or auto: bf16 where it is fast",
        ("fp32", "bf16", "fp16", "auto"),
    ),
    "rounding": Option("nearest", "rounding of coded values: nearest or stochastic", ("nearest", "stochastic")),
    "feedback": Option(False, "add what coding left out of one message to the next"),
    "seed": Option(None, "seed of the recipe's draws; default: the seed of the run"),
}
INHERITED = {
    "savings": Option(
        "inherited",
        "exact savings; inherited: all of them (as in exact); as-published: none (as in vanilla)",
        ("inherited", AS_PUBLISHED),
    ),
}
BATCHED = {
    "ahead": Option(2, "batches that a thread makes ahead of the step that trains; 0: none"),
    **{name: option for name, option in CODED.items() if name != "feedback"},
}
GUARDED = {
    "guard": Option("off", "on: rows are exact while they change fast, and lossy when that is safe", ("off", "on")),
    "guard_error": Option(0.05, "error of rows, relative to their size, below which lossy rows are safe"),
}
CACHED = {
    "cache": Option("inclusion", "which halo features to keep, if not all of them", POLICIES),
    "cache_rows": Option(
        -1.0, "halo features that a worker may keep: a number, or a share below 1; -1: all (no cache)"
    ),
}
SAMPLERS = ("none", "boundary", "optimal-boundary", "independent", "coupled")
SAMPLED = {
    "sampler": Option("none", "the graph of a step: whole, or drawn by this sampler", SAMPLERS, outside=True),
    "rate": Option(1.0, "share of the halo rows (boundary samplers) or neighbours (others) that is kept"),
    "refresh": Option(20, "steps between refreshes of probabilities that depend on the norms of rows"),
}
NOISE = 0.2  # of guard_error: 1 %, about what coding to 8 bits leaves in a row
LEAST_DRAWN = (
    512  # rows of a link; of 64 values in 8 bits they take 0.3 ms at 1 Gbit/s, as long as a message takes anyway
)
NO_SAVINGS = Savings(narrow_side=False, aggregate_once=False, overlap=False, read_rows=False, cover=False, relay=False)


def guarded(default: str) -> dict[str, Option]:
    """Return the options of a guard that is off or on by default."""
    return {**GUARDED, "guard": replace(GUARDED["guard"], default=default)}


def savings(settings: Settings) -> Savings:
    return NO_SAVINGS if settings["savings"] == AS_PUBLISHED else Savings()


def noise(settings: Settings) -> float:
    """Return the noise that draws may leave in the mean of the rows that a loss reads: a guard limits it; 0: any."""
    return NOISE * settings["guard_error"] if settings.get("guard") == "on" else 0.0


def sampler(settings: Settings, asked_for: bool = True) -> Sampler | None:
    """Return the sampler of that name, or None for the whole graph. ``asked_for``: it is no default of the recipe."""
    name, rate, refresh = settings["sampler"], settings["rate"], settings["refresh"]
    if is_outside(name):
        return _from_outside(name, {"rate": rate, "refresh": refresh}, asked_for)
    if name == "none" and rate != 1:
        raise InputError(f"nothing is drawn without a sampler: set sampler to one of {', '.join(SAMPLERS[1:])}")
    if asked_for and name != "none" and rate == 1:
        raise InputError(f"{name} draws a share of the graph: set rate below 1, or leave sampler out")
    if name == "none" or rate == 1:
        return None
    match name:
        case "boundary":
            return Boundary(rate)
        case "optimal-boundary":
            limit = noise(settings)
            return OptimalBoundary(rate, refresh, limit, LEAST_DRAWN if limit else 0)
        case "independent" | "coupled":
            return Neighbours(rate, refresh, coupled=name == "coupled", noise=noise(settings))
    raise InputError(f"unknown sampler {name!r}: use one of {', '.join(SAMPLERS)}")


def _from_outside(name: str, given: Settings, asked_for: bool) -> Sampler:
    """Return the sampler that a user's class or function makes, given rate and refresh if it takes them."""
    make = imported(name, "sampler")
    if not callable(make):
        raise InputError(f"{name} is no class or function: it must make a sampler")
    takes = inspect.signature(make).parameters
    if asked_for and given["rate"] != 1 and "rate" not in takes:
        raise InputError(f"{name} takes no rate: leave it out, or give {name} a parameter of that name")
    made = make(**{option: value for option, value in given.items() if option in takes})
    missing = [part for part in ("draw", "inclusion", "refresh") if not hasattr(made, part)]
    if missing:
        raise InputError(f"{name} makes no sampler: it lacks {', '.join(missing)} (CONTRIBUTING.md, A sampler)")
    return made


def cache(settings: Settings) -> CachePolicy | None:
    """Return the cache of input features, if not all of them may stay."""
    rows = settings["cache_rows"]
    if rows < 0 and rows != -1:
        raise InputError(f"cache_rows must be a number of rows, a share below 1, or -1 for all, not {rows:g}")
    if rows < 0 and settings["cache"] != CACHED["cache"].default:
        raise InputError("all halo features stay: set cache_rows to those that a worker may keep, or leave cache out")
    return None if rows < 0 else CachePolicy(settings["cache"], rows)


def mini_batches(settings: Settings, **how: Any) -> Policy:
    """Return the policy of mini-batches with these settings, drawn and fed as ``how`` says (`BatchPolicy`)."""
    rows, gradients = coding({**settings, "feedback": False})
    batches = BatchPolicy(
        ahead=settings["ahead"],
        rows=codec(settings["bits"]),  # they never change, so neither do their errors
        seed=settings["seed"],
        **how,
    )
    return Policy(
        Savings(read_rows=False), Stages(**rows), Stages(**gradients), None, settings["seed"], batches=batches
    )


def coding(settings: Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the encode and feedback stages of features, and those of gradients."""
    bits, rounding, feedback = settings["bits"], settings["rounding"], settings["feedback"]
    of_gradients = bits if settings["bits_gradients"] == "as bits" else settings["bits_gradients"]
    codecs = codec(bits, rounding), codec(of_gradients, rounding)
    if all(each.as_is for each in codecs) and (feedback or rounding == "stochastic"):
        raise InputError("rows are sent as they are: rounding and feedback need bits (or bits_gradients) below 32")
    forward, backward = ({"encode": each, "feedback": feedback and not each.as_is} for each in codecs)
    return forward, backward
