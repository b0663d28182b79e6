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
    before, counted = run.level, run.transport.ledger
    run.transport.ledger = Ledger()
    run.level = run.levels[-1] if run.guard is not None else _beside(run)
    try:
        yield
        run.level.drain()
    finally:
        run.level, run.transport.ledger = before, counted


def _beside(run: Runtime) -> Level:
    """Return the exact level of a run that has none of its own; it is made once."""
    if run.exact is None:
        draws = run.seed if run.asked.seed is None else run.asked.seed
        run.exact = Level(run.whole, run.transport, run.asked.exact, draws, run.dtype)
        if run.declared is not None and run.savings.read_rows:
            run.exact.declare(*run.declared)
    return run.exact
