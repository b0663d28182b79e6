"""The recipes of a comparison, as people list them: "vanilla, bns rate=0.1 bits=8, pipegcn"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus import recipes
from isthmus.errors import InputError
from isthmus.recipes.given import given


@dataclass(frozen=True)
class Entry:
    """A recipe with options; its label, as it was written, tells it from the others."""

    label: str
    recipe: str
    options: dict[str, Any]

    @property
    def folder(self) -> str:
        """The label as the name of a folder."""
        return re.sub(r"[^\w.=+-]+", "-", self.label)


def read_entries(text: str) -> list[Entry]:
    """Entries are separated by commas or semicolons; each is a recipe's name and then ``option=value`` after spaces."""
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
    options = recipe.settings(given(words[1:]))
    recipe.policy(options)  # refused before any work is done
    return Entry(" ".join(words), recipe.name, options)


def turns(entries: Sequence[Entry], seeds: int) -> Iterator[tuple[int, Entry]]:
    """Every entry once with every seed. The order rotates from seed to seed: none is always first, and whatever
    slows the machine down for a while meets all of them."""
    for seed in range(seeds):
        first = seed % len(entries)
        for entry in (*entries[first:], *entries[:first]):
            yield seed, entry
