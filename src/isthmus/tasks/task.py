"""The task of a graph: what is learned about its nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

CLASSES, LABELS, VALUES = "classes", "labels", "values"


class Described(Protocol):
    """A book, or anything else that says what its labels are."""

    @property
    def classes(self) -> int: ...
    @property
    def multilabel(self) -> bool: ...
    @property
    def regression(self) -> bool: ...


@dataclass(frozen=True)
class Task:
    """One class per node, several labels, or values (regression); ``width`` columns of output."""

    kind: str
    width: int

    @staticmethod
    def of(book: Described) -> Task:
        kind = VALUES if book.regression else LABELS if book.multilabel else CLASSES
        return Task(kind, book.classes)

    @property
    def words(self) -> str:
        return {CLASSES: f"{self.width} classes", LABELS: f"{self.width} labels", VALUES: f"{self.width} value(s)"}[
            self.kind
        ]
