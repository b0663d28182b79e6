"""An exact pass beside a lossy one: the same weights, masks and step, with rows as exact training has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from isthmus.comm import Ledger
from isthmus.local.level import Level
from isthmus.local.runtime import Runtime


@contextmanager
def exact_pass(run: Runtime) -> Iterator[None]:
    """Let rows be exact in passes that begin with ``beside=True``; then the run goes on as if nothing had been.

    Every worker enters at the same time. What is sent meanwhile is not the recipe's, and is not counted.
    """
    ladder, counted = run.ladder, run.transport.ledger
    before, run.transport.ledger = ladder.level, Ledger()
    ladder.level = ladder.last if ladder.controller is not None else _beside(run)
    try:
        yield
        run.level.drain()
    finally:
        ladder.level, run.transport.ledger = before, counted


def _beside(run: Runtime) -> Level:
    """Return the exact level of a run that has none of its own; it is made once."""
    if run.exact is None:
        run.exact = run.level_of(run.asked.exact)
    return run.exact
