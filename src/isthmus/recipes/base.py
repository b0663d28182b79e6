"""The form of a recipe: one published system as a combination of policies, with its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from isthmus.comm import codec
from isthmus.errors import InputError
from isthmus.local import Guard, Policy, Rung
from isthmus.outside import FORM, is_outside

Settings = dict[str, Any]
FULL_GRAPH, MINI_BATCH = "full-graph", "mini-batch"
_DOES = {FULL_GRAPH: "on the full graph", MINI_BATCH: "by mini-batches"}
_OF_PLANE: dict[str, dict[str, Any]] = {
    FULL_GRAPH: {"inductive": False, "probe_every": 0},
    MINI_BATCH: {
        "batch_size": None,
        "fanout": None,
        "eval_fanout": None,
        "batch": None,
        "structure": None,
        "rows": None,
    },
}
"""Options of training that one plane alone understands, and what they are when they are not given."""


@dataclass(frozen=True)
class Option:
    """A setting that a recipe understands, given as ``--set name=value``."""

    default: Any
    help: str
    choices: tuple[Any, ...] = ()
    outside: bool = False
    """Whether ``package.module:NAME`` is a choice, too."""

    def check(self, name: str, value: Any) -> Any:
        """Check a value and return it as the recipe takes it: one of the choices, or of the default's type."""
        if value == self.default and type(value) is type(self.default):
            return value
        if self.choices:
            if value not in self.choices and not (self.outside and is_outside(value)):
                known = ", ".join(str(choice) for choice in self.choices) + f", or {FORM}" * self.outside
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
    """The reading of the paper, where it is silent or its code differs."""
    method: str = "metis"
    objective: str | None = None
    cut: str = "edge"
    """The way to cut a graph that has not been cut yet: see `partition`."""
    plane: str = FULL_GRAPH
    ladder: Sequence[tuple[float, Settings]] = ()
    """What option ``auto`` chooses from, least lossy first: options, and what they send of what the first ones do."""

    def check_plane(self, given: Mapping[str, Any]) -> None:
        """Refuse options of training (by name) that the recipe's plane does not understand."""
        for plane, options in _OF_PLANE.items():
            for name, unset in options.items():
                if plane != self.plane and given.get(name, unset) != unset:
                    word, does = name.replace("_", "-"), _DOES[self.plane]
                    raise InputError(f"{self.name} trains {does}: leave out --{word}, an option of {plane} recipes")

    @property
    def way(self) -> dict[str, Any]:
        """The options of `partition` for a graph that has not been cut yet."""
        return {"method": self.method, "objective": self.objective, "cut": self.cut}

    def settings(self, given: Mapping[str, Any]) -> Settings:
        """Return the options in force; the error for an unknown name lists the known ones."""
        for name in given:
            if name not in self.options:
                known = ", ".join(self.options) or "none"
                raise InputError(f"recipe {self.name} has no option {name!r}: it knows {known}")
        return {
            name: option.check(name, given[name]) if name in given else option.default
            for name, option in self.options.items()
        }

    def policy(self, given: Mapping[str, Any] | None = None) -> Policy:
        """Return the policy of the workers, with these options and the defaults of the others."""
        settings = self.settings(given or {})
        guard = Guard(settings["guard_error"]) if settings.get("guard") == "on" else None
        if not settings.get("auto"):
            return replace(self._made(settings), guard=guard)
        rungs = [Rung(_named(options), share, self._made(settings | options)) for share, options in self.ladder]
        return replace(rungs[0].policy, guard=guard, rungs=tuple(rungs))

    def _made(self, settings: Settings) -> Policy:
        # All recipes sum the gradients of the weights alike. Coarse codes are rounded without bias there, since no
        # error is fed back.
        weights = codec(settings.get("bits_weights", 32), "stochastic")
        return replace(self.make(settings), weights=weights, precision=settings.get("precision", "fp32"))


def _named(options: Settings) -> str:
    """Return the options of a rung as one would give them, without those that follow from others."""
    return " ".join(f"{name}={options[name]}" for name in ("staleness", "rate", "bits"))
