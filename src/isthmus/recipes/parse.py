"""Recipes and their options as people write them: "name=value", "vanilla, bns rate=0.1 bits=8, pipegcn"."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus import recipes
from isthmus.errors import InputError


def read_options(pairs: Iterable[str]) -> dict[str, Any]:
    """Return ``name=value`` pairs as a dict; values are read as json where they can be, else as text."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"{pair!r} has no value: write the options of a recipe as name=value")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


@dataclass(frozen=True)
class Entry:
    """A recipe with options; its label, as it was written, distinguishes it from the others."""

    label: str
    recipe: str
    options: dict[str, Any]

    @property
    def folder(self) -> str:
        """The label as the name of a folder."""
        return re.sub(r"[^\w.=+-]+", "-", self.label)


def read_entries(text: str) -> list[Entry]:
    """Read recipes separated by commas or semicolons, each a name followed by ``option=value`` after spaces."""
    entries = [_entry(words) for piece in re.split(r"[,;]", text) if (words := piece.split())]
    if not entries:
        raise InputError('no recipe to compare: write --recipes "vanilla, exact, bns rate=0.1"')
    folders = [entry.folder for entry in entries]
    for entry in entries:
        if folders.count(entry.folder) > 1:
            raise InputError(f"{entry.label!r} is listed twice: give every recipe once, or with different options")
    return entries


def _entry(words: Sequence[str]) -> Entry:
    recipe = recipes.find(words[0])
    options = recipe.settings(read_options(words[1:]))
    recipe.policy(options)  # to refuse it before any work is done
    return Entry(" ".join(words), recipe.name, options)


def turns(entries: Sequence[Entry], seeds: int) -> Iterator[tuple[int, Entry]]:
    """Yield every entry once with every seed, in an order that rotates from seed to seed.

    So none is always first, and whatever slows the machine down for a while affects all of them.
    """
    for seed in range(seeds):
        first = seed % len(entries)
        for entry in (*entries[first:], *entries[:first]):
            yield seed, entry
