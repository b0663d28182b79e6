"""A recipe: one published system as a row of one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from isthmus.errors import InputError
from isthmus.local import Savings


@dataclass(frozen=True)
class Option:
    """A setting that a recipe understands, given as ``--set name=value``."""

    default: Any
    help: str


@dataclass(frozen=True)
class Recipe:
    """A named combination of policies."""

    name: str
    summary: str
    paper: str
    savings: Savings
    options: Mapping[str, Option] = field(default_factory=dict)

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The options in force; an unknown name is an error that lists the known ones."""
        for name in given:
            if name not in self.options:
                known = ", ".join(self.options) or "none"
                raise InputError(f"recipe {self.name} has no option {name!r}: it knows {known}")
        return {name: given.get(name, option.default) for name, option in self.options.items()}
