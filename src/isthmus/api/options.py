"""The options of the commands as keywords: the same names, defaults and checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from torch import nn

from isthmus.device import HOST
from isthmus.engine import PredictConfig, TrainConfig
from isthmus.errors import InputError
from isthmus.graph.options import LoadOptions
from isthmus.launch.job import Job
from isthmus.launch.start import Start
from isthmus.nn import ModelConfig
from isthmus.options import GROUPS, OptionField, options_of
from isthmus.partition.options import PartitionOptions
from isthmus.recipes import Recipe
from isthmus.recipes.parse import read_options

DECLARED = (TrainConfig, ModelConfig, Start, Job, PredictConfig, LoadOptions, PartitionOptions)
OTHER_DEFAULTS: dict[str, dict[str, Any]] = {
    "verify": {"hidden": 16, "steps": 5, "dtype": "float64"},
    "Worker": {"dtype": None, "device": HOST.type},  # torch's default; the place where models are made
}


def declared() -> list[OptionField]:
    """Return all options of all commands; one that two classes declare is there twice."""
    return [one for kind in DECLARED for one in options_of(kind)]


@cache
def options(taker: str) -> Mapping[str, OptionField]:
    """Return the options of a command, or of ``Worker``, by their keywords and in the order of their groups."""
    found = [one for one in declared() if taker in one.about.takers]
    found.sort(key=lambda one: GROUPS.index(one.about.group))
    other = OTHER_DEFAULTS.get(taker, {})
    return {one.name: replace(one, default=other.get(one.name, one.default)) for one in found}


def complete(taker: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options, with defaults for those not given; refuse an unknown one with a list of the known ones."""
    known = options(taker)
    for name in given:
        if name not in known:
            raise InputError(f"{taker} has no option {name!r}: it knows {', '.join(known)}")
    return {**{name: one.default for name, one in known.items()}, **given}


def values_of(kind: type, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a dataclass whose options are among those asked for."""
    return {one.field: asked[one.name] for one in options_of(kind) if one.name in asked}


def config_of(asked: Mapping[str, Any], recipe: Recipe | None = None) -> TrainConfig:
    """Return the training config that the options ask for; refuse those that the recipe refuses."""
    chosen = values_of(TrainConfig, asked)
    if recipe is not None:
        chosen |= {"recipe": recipe.name, "options": settings(recipe, asked["set"])}
        recipe.policy(chosen["options"])
        recipe.check_plane(chosen)
    return TrainConfig(ModelConfig(**values_of(ModelConfig, asked)), **chosen)


def settings(recipe: Recipe, asked: Mapping[str, Any] | Iterable[str] | None) -> dict[str, Any]:
    """Return the recipe's options with their defaults filled in."""
    return recipe.settings(named_settings(asked))


def named_settings(asked: Mapping[str, Any] | Iterable[str] | None) -> Mapping[str, Any]:
    """Return the options of a recipe by name, given so or as ``name=value``."""
    return asked if isinstance(asked, Mapping) else read_options(asked or ())


MAKES = "the class or function that makes it when called with (features, classes)"


def importable(given: Any, what: str = "model", instead: str = MAKES) -> str:
    """Return the import name of a model, a loss or a metric, since every worker process imports it anew."""
    if isinstance(given, str):
        return given
    if isinstance(given, nn.Module) or not callable(given) or not hasattr(given, "__qualname__"):
        raise InputError(
            f"{type(given).__name__} cannot be sent to workers as {what}: give {instead}; "
            "or train in a loop of your own with isthmus.Worker"
        )
    module, name = getattr(given, "__module__", "__main__"), given.__qualname__
    if module == "__main__" or "<" in name:
        raise InputError(
            f"{name} is defined where workers cannot import it (in a notebook, a script or a function): put it into a "
            "file (in a notebook: %%writefile models.py) and import it; or write a loop of your own with isthmus.Worker"
        )
    return f"{module}:{name}"


def by_names(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with models, losses and metrics that were given as Python objects by their import names."""
    named = {"model": importable(asked["model"])}
    for what in ("loss", "metric"):
        if asked[what] is not None:
            named[what] = importable(asked[what], what, "a function of (logits, y)")
    return {**asked, **named}
