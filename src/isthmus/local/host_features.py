"""Input features that stay in the host's memory: aggregated once, a few columns at a time, and read by row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from isthmus.device import on_host
from isthmus.kernels import HostRows
from isthmus.local import exchange
from isthmus.local.runtime import Runtime

COLUMNS = 64  # that are on the device at a time, about as many as a hidden layer has; the same on every worker


def aggregate_host(run: Runtime, x: HostRows, norm: str) -> HostRows:
    """Return P X of fixed rows, [n, F], on the host; it is made once per run."""
    assert run.is_fixed(x), "rows of the host are fixed, and read through a weight after dropout"
    by_columns = partial(exchange.aggregate, run, norm=norm, site=run.next_site(), exact=True)
    return run.fixed.once(f"aggregate {norm}", partial(_made, run, x, by_columns))


def host_halo(run: Runtime, x: HostRows) -> HostRows:
    """Return fixed rows, then those of the halo nodes of this step's graph, [n + h, F], on the host."""
    assert run.is_fixed(x), "rows of the host are fixed, and read through a weight after dropout"
    site, picked = run.next_site(), run.drawn.picked
    if run.drawn.alone:
        return x
    by_columns = partial(exchange.with_halo, run, site=site, exact=True)
    every: HostRows = run.fixed.once("halo", partial(_made, run, x, by_columns))
    if picked is None:
        return every
    own = torch.arange(len(x), device=picked.device)
    return every.take(torch.cat([own, len(x) + picked]))


def _made(run: Runtime, x: HostRows, make: Callable[[Tensor], Tensor]) -> HostRows:
    """Return what ``make`` gives for x, column by column."""
    before, run.training = run.training, False  # as it is, whatever the precision of training is
    try:
        pieces = [on_host(make(x.columns(slice(at, at + COLUMNS)))) for at in range(0, x.shape[1], COLUMNS)]
    finally:
        run.training = before
    return HostRows.of(torch.cat(pieces, 1), x.device)
