"""The settings in which recipes are compared with their literal algorithms."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """The setting in which a recipe is tried. Ten classes make the last layer widen, so that its input is exchanged."""

    workers: int
    model: str
    savings: str = "inherited"
    classes: int = 5
    directed: bool = False

    def __str__(self) -> str:
        return f"{self.workers}-{self.model}-{self.savings}{'-directed' * self.directed}"


TWO = Place(2, "gcn")
THREE = Place(3, "sage", "as-published")
FOUR = Place(4, "sage", classes=10)
DIRECTED = Place(2, "gcn", "as-published", directed=True)
ALONE = Place(1, "sage")
