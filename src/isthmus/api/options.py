"""The options of `isthmus train` as keywords: the same names, defaults and checks."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, TypedDict

from torch import nn

from isthmus.engine import TrainConfig
from isthmus.errors import InputError
from isthmus.launch.job import Job
from isthmus.nn import ModelConfig
from isthmus.recipes import Recipe
from isthmus.recipes.parse import read_options

Settings = Mapping[str, Any] | Iterable[str]


class TrainOptions(TypedDict, total=False):
    """The options of training; see `isthmus train --help`, and `TrainConfig` and `ModelConfig` for the defaults."""

    recipe: str
    set: Settings | None
    """The recipe's own options: ``{"rate": 0.1}``, or ``["rate=0.1"]`` as on the command line."""
    model: str | type[nn.Module] | Callable[..., nn.Module]
    """gcn, sage, gat, ``"package.module:name"``, or a class or function that workers can import."""
    layers: int
    hidden: int
    heads: int
    dropout: float
    input_dropout: float
    layer_norm: bool
    lr: float
    weight_decay: float
    optimizer: str
    steps: int
    eval_every: int
    patience: int
    checkpoint_every: int
    probe_every: int
    split: int
    features: str
    inductive: bool
    metric: str | None
    seed: int
    dtype: str
    rows_dtype: str | None
    workers: int | None
    method: str | None
    undirected: bool
    directed: bool
    threads: int | None
    timeout: float
    launcher: str
    restarts: int
    out: str | os.PathLike[str] | None
    resume: bool
    tensorboard: bool
    track: str | None
    quiet: bool


def _defaults() -> dict[str, Any]:
    """Return every option with its default; those of config and job are declared in their classes."""
    found: dict[str, Any] = dict.fromkeys(TrainOptions.__annotations__)
    found |= {"undirected": False, "directed": False, "launcher": "auto"}
    for kind in (Job, TrainConfig, ModelConfig):
        found |= {f.name: f.default for f in fields(kind) if f.name in found and f.name != "model"}
    return {**found, "model": ModelConfig.model}


DEFAULTS = _defaults()
_SHAPE = tuple(f.name for f in fields(ModelConfig))


def complete(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options, with defaults for those not given; refuse an unknown one with a list of the known ones."""
    for name in options:
        if name not in DEFAULTS:
            raise InputError(f"train has no option {name!r}: it knows {', '.join(DEFAULTS)}")
    return {**DEFAULTS, **options, "model": importable(options.get("model", DEFAULTS["model"]))}


def signature(function: Callable) -> inspect.Signature:
    """Return the signature of a function that takes ``**options``, with the options written out."""
    own = inspect.signature(function)
    first = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
    named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=d) for name, d in DEFAULTS.items()]
    return own.replace(parameters=[*first, *named])


def config_of(options: Mapping[str, Any], recipe: Recipe) -> TrainConfig:
    """Return the training config made of the options named like its fields; refuse those that the recipe refuses."""
    named = {f.name: options[f.name] for f in fields(TrainConfig) if f.name in options}
    named |= {"model": ModelConfig(**{name: options[name] for name in _SHAPE}), "recipe": recipe.name}
    config = TrainConfig(**named, options=settings(recipe, options["set"]))
    recipe.policy(config.options)
    return config


def settings(recipe: Recipe, asked: Settings | None) -> dict[str, Any]:
    """Return the recipe's options with their defaults filled in."""
    return recipe.settings(asked if isinstance(asked, Mapping) else read_options(asked or ()))


def importable(model: Any) -> str:
    """Return the import name of a model, since every worker process makes it anew."""
    if isinstance(model, str):
        return model
    if isinstance(model, nn.Module) or not callable(model):
        raise InputError(
            f"a {type(model).__name__} cannot be sent to workers: give the class or function that makes it when called "
            "with (features, classes); or train it in a loop of your own with isthmus.Worker"
        )
    module, name = getattr(model, "__module__", "__main__"), getattr(model, "__qualname__", "<no name>")
    if module == "__main__" or "<" in name:
        raise InputError(
            f"{name} is defined where workers cannot import it (in a notebook, a script or a function): put it into a "
            "file (in a notebook: %%writefile models.py) and import it; or write a loop of your own with isthmus.Worker"
        )
    return f"{module}:{name}"
