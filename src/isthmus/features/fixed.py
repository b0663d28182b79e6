"""Rows that never change, and what is made of them alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from isthmus.kernels import SparseMatrix

T = TypeVar("T")


class FixedRows:
    """The input features, and results that are made of them once per run, by name.

    A model that gets such a result may write to it in place. Then it is made anew, on all workers, since they run the
    same model; and copies are lent from then on.
    """

    def __init__(self, rows: Tensor | SparseMatrix | None = None):
        self.rows, self._version = rows, _version(rows)
        self._made: dict[str, tuple[Any, int]] = {}  # each with its version when it was made
        self._written_to: set[str] = set()

    def is_of(self, x: Tensor) -> bool:
        """Whether x are these rows, as they were."""
        return x is self.rows and x._version == self._version

    def once(self, what: str, make: Callable[[], T]) -> T:
        """What ``make`` gives, made once."""
        if what in self._made and _version(self._made[what][0]) != self._made[what][1]:
            self._written_to.add(what)
            del self._made[what]
        if what not in self._made:
            with torch.inference_mode(False):  # or it could not be used to train with afterwards
                made = make()
            self._made[what] = made, _version(made)
        return self._made[what][0]

    def lent(self, what: str, make: Callable[[], Tensor]) -> Tensor:
        """The same, for a model."""
        made = self.once(what, make)
        return made.clone() if what in self._written_to else made

    @property
    def names(self) -> dict[int, str]:
        """By the id of an object: how it is called here."""
        return {id(self.rows): "rows", **{id(made): what for what, (made, _) in self._made.items()}}


def _version(thing: object) -> int:
    """How often torch has written to it."""
    return thing._version if isinstance(thing, Tensor) else 0
