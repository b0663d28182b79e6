"""Input features of halo nodes: rows that never change, which cross once per run, or by way of a cache."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from isthmus.errors import InputError
from isthmus.features.sparse import fetch_sparse
from isthmus.kernels import HostRows, SparseMatrix
from isthmus.local import exchange
from isthmus.local.dropout import Dropped, dropout
from isthmus.local.runtime import Runtime


def fixed_halo(run: Runtime, source: Tensor, site: int, late: Dropped | None) -> Tensor:
    """Return halo rows that never change, as this step's graph reads them: from the cache, or kept here."""
    if run.cached is not None:
        halo = run.cached.rows(source, site, run.step)
    else:
        rows, picked = kept_halo(run, site)[run.whole.num_inner :], run.drawn.picked
        halo = rows if picked is None else rows[picked]
    return halo if late is None else drop_halo(run, halo, late)


def kept_halo(run: Runtime, site: int) -> Tensor:
    """Return the rows that never change, of inner and of all halo nodes; they cross a link once per run."""
    assert isinstance(run.fixed.rows, Tensor), "rows are declared by `fix` before they are read"
    return run.fixed.once("halo", partial(exchange.with_halo, run, run.fixed.rows, site, exact=True))


def drop_halo(run: Runtime, halo: Tensor, late: Dropped) -> Tensor:
    """Return halo rows dropped out as `LocalGraph.dropout` did it to inner rows."""
    return dropout(halo, run.drawn.halo_nodes, late.mask.stream(run.step), late.mask.p, False)


def dropout_sparse(run: Runtime, x: SparseMatrix, p: float) -> SparseMatrix:
    """Return sparse feature rows after dropout."""
    stream = run.next_mask(p).stream(run.step)
    dropped = x.dropout(run.whole.nodes, stream, p)
    run.dropped_sparse = dropped, stream, p
    return dropped


def dropout_host(run: Runtime, x: HostRows, p: float) -> HostRows:
    """Return feature rows of the host that are dropped out where they are read."""
    mask = run.next_mask(p)
    if p and run.masks_late:
        raise InputError(
            "--features-on host with --input-dropout needs rows that are read at the step they are sent at, and this "
            "recipe reads old ones: leave one of them out, or take another recipe"
        )
    return x.dropout(run.whole.nodes, mask.stream(run.step), p)


def sparse_halo(run: Runtime, x: SparseMatrix) -> SparseMatrix:
    """Return the sparse features of all halo nodes, dropped out as x was; they cross a link once per run."""
    fixed, site = run.fixed.rows, run.next_site()
    assert isinstance(fixed, SparseMatrix), "rows are declared by `fix` before they are read"
    fetch = partial(fetch_sparse, fixed, run.whole.links, run.transport, site, run.step)
    halo: SparseMatrix = run.fixed.once("sparse halo", fetch)
    if x is fixed:
        return halo
    assert run.dropped_sparse is not None, "sparse rows are those that were fixed"
    dropped, stream, p = run.dropped_sparse
    assert x is dropped, "sparse rows are dropped out once"
    return halo.dropout(run.whole.halo_nodes, stream, p)
