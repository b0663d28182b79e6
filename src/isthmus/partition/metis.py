"""Call METIS through ctypes: k-way partition with several balance constraints and both objectives.

pymetis' own function takes one constraint; the library inside its wheel exports the whole C interface of METIS 5.1.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

import numpy as np

from isthmus.errors import InputError

OBJECTIVES = MappingProxyType({"cut": 0, "vol": 1})  # edges cut; rows sent (total communication volume)

BYTES_PER_EDGE = 80  # measured: 80 to 135, more if the graph has weaker communities

_OPTIONS = 40  # METIS_NOPTIONS; below, indices of metis.h 5.1
_OBJTYPE, _NITER, _NCUTS, _SEED, _MINCONN, _CONTIG, _UFACTOR, _NUMBERING = 1, 6, 7, 8, 10, 11, 16, 17
_OK = 1
_FAILURES = {-2: "refused its input", -3: "ran out of memory", -4: "failed"}


@dataclass(frozen=True)
class MetisOptions:
    """The options of METIS: what it minimises, how uneven loads may be, how often it refines."""

    objective: str = "cut"
    tolerance: float = 0.03
    iterations: int = 10
    """Rounds of refinement; fewer is faster."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise InputError(f"unknown METIS objective '{self.objective}': choose one of {', '.join(OBJECTIVES)}")


def kway(
    indptr: np.ndarray,
    indices: np.ndarray,
    parts: int,
    options: MetisOptions | None = None,
    *,
    node_weights: np.ndarray | None = None,
    edge_weights: np.ndarray | None = None,
) -> np.ndarray:
    """Return the part of every node of a symmetric graph without self loops, int32 [N].

    Minimises the edges cut (objective "cut") or Σ_v |parts other than v's that hold a neighbour of v| ("vol") such that
    every column of ``node_weights`` (int [N, c], default ones) has max/mean ≤ 1 + tolerance, as far as METIS can.
    ``edge_weights`` (int [E]) count for "cut" only.
    """
    asked = options or MetisOptions()
    nodes = len(indptr) - 1
    if parts < 1 or parts > nodes:
        raise InputError(f"cannot cut {nodes} nodes into {parts} parts: ask for 1 to {nodes} parts")
    if parts == 1:
        return np.zeros(nodes, np.int32)
    if len(indices) == 0:  # METIS needs at least one edge
        return (np.arange(nodes) * parts // nodes).astype(np.int32)

    ids = np.int64 if _id_bytes() == 8 else np.int32
    if len(indices) > np.iinfo(ids).max:
        raise InputError(f"this METIS has 32-bit ids and cannot hold {len(indices):,} edges: use --method ldg")
    _check_memory(len(indices))
    xadj = np.ascontiguousarray(indptr, dtype=ids)
    adjncy = np.ascontiguousarray(indices, dtype=ids)
    weights = None if node_weights is None else np.ascontiguousarray(node_weights.reshape(nodes, -1), dtype=ids)
    adjwgt = None if edge_weights is None else np.ascontiguousarray(edge_weights, dtype=ids)

    library = _library()
    settings = np.empty(_OPTIONS, ids)
    library.METIS_SetDefaultOptions(_pointer(settings))
    settings[[_OBJTYPE, _NITER, _NCUTS, _SEED]] = OBJECTIVES[asked.objective], asked.iterations, 1, asked.seed % 2**31
    settings[[_MINCONN, _CONTIG, _UFACTOR, _NUMBERING]] = 0, 0, max(1, round(1000 * asked.tolerance)), 0
    constraints = 1 if weights is None else weights.shape[1]
    scalars = [np.array([value], ids) for value in (nodes, constraints, parts, 0)]
    n, ncon, nparts, achieved = (_pointer(value) for value in scalars)
    assignment = np.empty(nodes, ids)
    code = library.METIS_PartGraphKway(
        n, ncon, _pointer(xadj), _pointer(adjncy), _pointer(weights), None, _pointer(adjwgt),
        nparts, None, None, _pointer(settings), achieved, _pointer(assignment),
    )  # fmt: skip
    if code != _OK:
        raise InputError(
            f"METIS {_FAILURES.get(code, f'ended with code {code}')} on {nodes:,} nodes, {len(indices):,} edges, "
            f"{parts} parts, {constraints} constraints: use --method ldg, which streams"
        )
    return assignment.astype(np.int32)


def _check_memory(edges: int) -> None:
    """Refuse a graph that the free memory cannot hold, since METIS keeps every level of its coarsening."""
    needed, free = edges * BYTES_PER_EDGE, free_memory()
    if free is not None and needed > free:
        raise InputError(
            f"METIS needs about {needed / 2**30:.0f} GiB for {edges:,} edges and {free / 2**30:.0f} GiB are free: "
            "use --method kaminpar, which needs a quarter (pip install 'isthmus[kaminpar]'), or --method ldg, which "
            "streams (--order ldg, if it is the order inside a part)"
        )


def free_memory() -> int | None:
    """Return the bytes that can be allocated without swapping; None if the system does not say."""
    try:
        with open("/proc/meminfo") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None


def available() -> bool:
    """Return whether METIS can be called here."""
    try:
        _library()
    except InputError:
        return False
    return True


@cache
def _library() -> ctypes.CDLL:
    try:
        from pymetis import _internal

        library = ctypes.CDLL(_internal.__file__)
        library.METIS_PartGraphKway.argtypes = [ctypes.c_void_p] * 13
        library.METIS_SetDefaultOptions.argtypes = [ctypes.c_void_p]
    except (ImportError, OSError, AttributeError) as error:
        raise InputError(f"METIS is not usable here ({error}): pip install pymetis, or use --method ldg") from error
    return library


@cache
def _id_bytes() -> int:
    """Return the width of METIS' idx_t: METIS_SetDefaultOptions fills 40 of them with -1 and sets a few."""
    probe = np.full(2 * _OPTIONS, 7, np.int32)
    _library().METIS_SetDefaultOptions(_pointer(probe))
    return 8 if (probe[_OPTIONS:] != 7).any() else 4


def _pointer(array: np.ndarray | None) -> int | None:
    return None if array is None else array.ctypes.data
