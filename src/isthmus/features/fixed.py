"""Input rows that never change during a run, and results computed from them once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from isthmus.kernels import HostRows, SparseMatrix, memory_of

T = TypeVar("T")


class FixedRows:
    """The input features, and named results that are computed from them once per run.

    A model may write in place to a result that it gets. The result is then computed again (on all workers, since they
    run the same model), and from then on models get copies.
    """

    def __init__(self, rows: Tensor | SparseMatrix | HostRows | None = None):
        self.rows, self._version = rows, _version(rows)
        self._made: dict[str, tuple[Any, int]] = {}  # each with its version at that time
        self._written_to: set[str] = set()

    def is_of(self, x: Tensor | HostRows) -> bool:
        """Return whether x is these rows, unmodified."""
        return x is self.rows and _version(x) == self._version

    def holds(self, x: Tensor) -> bool:
        """Return whether x shares the memory of these rows: the same tensor, or a view of all of it."""
        return isinstance(self.rows, Tensor) and x.shape == self.rows.shape and memory_of(x) == memory_of(self.rows)

    def once(self, what: str, make: Callable[[], T]) -> T:
        """Return the result of ``make``, which is called once and remembered under the name ``what``."""
        if what in self._made and _version(self._made[what][0]) != self._made[what][1]:
            self._written_to.add(what)
            del self._made[what]
        if what not in self._made:
            with torch.inference_mode(False):  # a tensor made in inference mode could not be trained with later
                made = make()
            self._made[what] = made, _version(made)
        return self._made[what][0]

    def lent(self, what: str, make: Callable[[], Tensor]) -> Tensor:
        """Return the same as `once`, but a copy once a model has written to the result in place."""
        made = self.once(what, make)
        return made.clone() if what in self._written_to else made

    def side_by_side(self, blocks: tuple[Tensor | HostRows, ...], dtype: torch.dtype) -> tuple[Tensor | HostRows, ...]:
        """Join blocks that never change into one of that dtype, once per run; return other blocks as they are."""
        names = [self.names.get(id(block)) for block in blocks]
        if None in names or isinstance(self.rows, HostRows):
            return blocks

        here = [block for block in blocks if isinstance(block, Tensor)]
        return (self.once(f"{dtype} of {names}", lambda: torch.cat([block.to(dtype) for block in here], dim=1)),)

    @property
    def names(self) -> dict[int, str]:
        """The names of everything that is kept, by the id of the object."""
        return {id(self.rows): "rows", **{id(made): what for what, (made, _) in self._made.items()}}


def _version(thing: object) -> int:
    """Return how often torch has written to it."""
    return thing._version if isinstance(thing, Tensor) else 0
