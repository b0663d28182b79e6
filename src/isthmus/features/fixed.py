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
        """Return whether x are these rows, as they were."""
        return x is self.rows and x._version == self._version

    def holds(self, x: Tensor) -> bool:
        """Return whether x lies where these rows lie: it is they, or a view of all of them."""
        return isinstance(self.rows, Tensor) and x.data_ptr() == self.rows.data_ptr() and x.shape == self.rows.shape

    def once(self, what: str, make: Callable[[], T]) -> T:
        """Return the result of ``make``, made once and called ``what``."""
        if what in self._made and _version(self._made[what][0]) != self._made[what][1]:
            self._written_to.add(what)
            del self._made[what]
        if what not in self._made:
            with torch.inference_mode(False):  # or it could not be used to train with afterwards
                made = make()
            self._made[what] = made, _version(made)
        return self._made[what][0]

    def lent(self, what: str, make: Callable[[], Tensor]) -> Tensor:
        """Like `once`, but a copy once a model has written to the result in place."""
        made = self.once(what, make)
        return made.clone() if what in self._written_to else made

    @property
    def names(self) -> dict[int, str]:
        """The names of all that is kept, by the id of the object."""
        return {id(self.rows): "rows", **{id(made): what for what, (made, _) in self._made.items()}}


def _version(thing: object) -> int:
    """Return how often torch has written to it."""
    return thing._version if isinstance(thing, Tensor) else 0
