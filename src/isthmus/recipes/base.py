"""A recipe: one published system as a row of one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from isthmus.comm import codec
from isthmus.errors import InputError
from isthmus.local import Policy

Settings = dict[str, Any]


@dataclass(frozen=True)
class Option:
    """A setting that a recipe understands, given as ``--set name=value``."""

    default: Any
    help: str
    choices: tuple[Any, ...] = ()

    def check(self, name: str, value: Any) -> Any:
        """The value as the recipe takes it: a choice, or of the default's type."""
        if value == self.default and type(value) is type(self.default):
            return value
        if self.choices:
            if value not in self.choices:
                known = ", ".join(str(choice) for choice in self.choices)
                raise InputError(f"{name} must be one of {known}, not {value!r}")
            return value
        number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63
        if isinstance(self.default, bool) and not isinstance(value, bool):
            raise InputError(f"{name} must be true or false, not {value!r}")
        if isinstance(self.default, float) and not isinstance(self.default, bool):
            if not number:
                raise InputError(f"{name} must be a number, not {value!r}")
            return float(value)
        if (self.default is None or isinstance(self.default, int)) and not isinstance(self.default, bool):
            if not number or value != int(value):
                raise InputError(f"{name} must be a whole number, not {value!r}")
            return int(value)
        return value


@dataclass(frozen=True)
class Recipe:
    """A named combination of policies."""

    name: str
    summary: str
    paper: str
    make: Callable[[Settings], Policy]
    options: Mapping[str, Option] = field(default_factory=dict)
    notes: str = ""
    """How the paper was read, where it is silent or its code differs."""
    method: str = "metis"
    objective: str | None = None
    """How a graph that is not yet cut should be cut: see `partition`."""

    def settings(self, given: Mapping[str, Any]) -> Settings:
        """The options in force; an unknown name is an error that lists the known ones."""
        for name in given:
            if name not in self.options:
                known = ", ".join(self.options) or "none"
                raise InputError(f"recipe {self.name} has no option {name!r}: it knows {known}")
        return {
            name: option.check(name, given[name]) if name in given else option.default
            for name, option in self.options.items()
        }

    def policy(self, given: Mapping[str, Any] | None = None) -> Policy:
        """What the workers do, with these options and the defaults of the others."""
        settings = self.settings(given or {})
        # The sum of the weights' gradients is the same affair in all of them; what is coarse there is rounded without
        # bias, since nothing of it is fed back.
        weights = codec(settings.get("bits_weights", 32), "stochastic")
        return replace(self.make(settings), weights=weights, precision=settings.get("precision", "fp32"))
