"""Custom models by name: ``package.module:Net`` is a class or function that every worker can import."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from isthmus.errors import InputError
from isthmus.nn.pyg import distribute
from isthmus.outside import imported


def own_model(name: str) -> Callable[..., Any]:
    """Return the class or function that ``package.module:name`` names."""
    make = imported(name, "model")
    if not callable(make):
        raise InputError(f"{name} is no class or function: it must make a model when called with (features, classes)")
    return make


def build_own(name: str, features: int, classes: int, shape: Mapping[str, tuple[Any, Any]]) -> nn.Module:
    """Call ``make(features, classes)`` with those options of ``shape`` (value, default) that it has parameters for.

    PyG convolutions in it are adapted to take a `LocalGraph` (`nn.pyg.distribute`).
    """
    make = own_model(name)
    takes = inspect.signature(make).parameters
    any_name = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())
    given = {o: value for o, (value, default) in shape.items() if o in takes or (any_name and value != default)}
    for option, (value, default) in shape.items():
        if option not in given and value != default:
            raise InputError(f"{name} takes no {option}: leave it out, or give {name} a parameter of that name")
    model = make(features, classes, **given)
    if not isinstance(model, nn.Module):
        raise InputError(f"{name} made a {type(model).__name__}: it must return an nn.Module")
    return distribute(model)
