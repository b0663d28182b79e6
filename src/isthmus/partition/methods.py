"""The methods that cut a graph: each takes the graph and returns the part of every node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from isthmus.errors import InputError
from isthmus.graph.graph import Graph
from isthmus.outside import FORM, imported, is_outside
from isthmus.partition import metis
from isthmus.partition.adjacency import symmetric_csr
from isthmus.partition.bytegnn import BlockOptions, bytegnn
from isthmus.partition.kaminpar import kaminpar
from isthmus.partition.ldg import ldg

M = TypeVar("M")
Report = Callable[[int, int], None]
_WEIGHT = 1000  # of a node of mean load, as KaMinPar takes it: whole numbers
BALANCE = ("nodes", "edges", "train", "val", "test")


@dataclass(frozen=True)
class CutOptions:
    """The options of a cut; ``Method.takes`` names those that a method uses."""

    seed: int = 0
    """The seed of every random choice."""
    balance: tuple[str, ...] = ("nodes", "edges", "train")
    """Loads of which all parts get an equal share: nodes, edges (in-degrees), train, val, test (summed over splits)."""
    objective: str = "cut"
    """The quantity that METIS minimises: "cut", edges between parts, or "vol", rows sent between parts."""
    passes: int = 10
    """How many times ldg (and bytegnn in its end) reads the graph; the first few passes gain the most."""
    tolerance: float = 0.03
    """The bound of every load: max/mean is to stay below 1 + tolerance."""
    hops: int = 2
    """How far bytegnn's blocks reach: the layers of the models to train."""
    assignment: str | None = None
    """How bytegnn assigns its blocks."""

    def __post_init__(self) -> None:
        for name in self.balance:
            if name not in BALANCE:
                raise InputError(f"cannot balance '{name}': choose from {', '.join(BALANCE)}")
        if not self.balance:
            raise InputError("nothing to balance: give balance at least one of " + ", ".join(BALANCE))
        if self.objective not in metis.OBJECTIVES:
            raise InputError(f"unknown objective '{self.objective}': choose one of {', '.join(metis.OBJECTIVES)}")
        if self.passes < 1:
            raise InputError(f"passes must be at least 1, not {self.passes}")
        if not 0 < self.tolerance <= 1:
            raise InputError(f"tolerance must be in (0, 1], not {self.tolerance}: 0.03 allows 3 % above the mean")
        BlockOptions(self.assignment, self.hops)  # refuse what it refuses


@dataclass(frozen=True)
class Method:
    """A method to cut a graph, with the options that it uses."""

    assign: Callable[..., np.ndarray]  # (graph, parts, options) -> int32 [N]
    description: str
    takes: tuple[str, ...] = ()
    reports: bool = False
    """Whether `assign` takes a fourth argument, which it calls with (done, total) now and then."""


def assign(
    graph: Graph, parts: int, method: str, options: CutOptions, report: Report = lambda done, total: None
) -> np.ndarray:
    """Return the part of every node by the named method, int32 [N]; no part is empty."""
    if graph.num_nodes < parts or parts < 1:
        raise InputError(f"cannot cut {graph.num_nodes} nodes into {parts} parts: ask for 1 to {graph.num_nodes} parts")
    chosen = find(method)
    if parts == 1:
        return np.zeros(graph.num_nodes, np.int32)
    follow = (report,) if chosen.reports else ()
    return fill_empty(chosen.assign(graph, parts, options, *follow), parts, graph.degree)


def find(method: str) -> Method:
    """Return the method of that name, importing one from outside, or refuse the name."""
    if is_outside(method):
        return from_outside(method, Method)
    if method not in METHODS:
        known = ", ".join(METHODS)
        raise InputError(f"unknown partition method '{method}': choose one of {known}, or your own as {FORM}")
    return METHODS[method]


def from_outside(name: str, kind: type[M]) -> M:
    """Return the method that a user names as ``package.module:NAME``; refuse one of another kind."""
    found = imported(name, "partition method")
    if not isinstance(found, kind):
        raise InputError(f"{name} is a {type(found).__name__}: make it a {kind.__name__}, or give another --cut")
    return found


def fill_empty(assignment: np.ndarray, parts: int, degree: np.ndarray) -> np.ndarray:
    """Give every empty part one node: the one of least degree in the part that has the most nodes."""
    sizes = np.bincount(assignment, minlength=parts)
    for empty in np.flatnonzero(sizes == 0):
        largest = int(np.argmax(sizes))
        members = np.flatnonzero(assignment == largest)
        assignment[members[np.argmin(degree[members])]] = empty
        sizes[largest] -= 1
        sizes[empty] = 1
    return assignment


def enforceable(graph: Graph, parts: int, balance: tuple[str, ...]) -> tuple[str, ...]:
    """Return the loads that can be balanced: those with more units than parts, since METIS fails on the others."""
    totals = {"nodes": graph.num_nodes, "edges": graph.num_edges}
    totals |= {name: int(np.count_nonzero(_mask(graph, name))) for name in BALANCE[2:]}
    return tuple(name for name in balance if totals[name] > parts) or ("nodes",)


def loads(graph: Graph, balance: tuple[str, ...], rows: slice) -> np.ndarray:
    """Return the weight of each of the rows in each load, int64 [len(rows), c]."""

    def column(name: str) -> np.ndarray:
        if name == "nodes":
            return np.ones(rows.stop - rows.start, np.int64)
        if name == "edges":
            return np.diff(graph.indptr[rows.start : rows.stop + 1])
        return _mask(graph, name)[rows].sum(axis=1)

    return np.stack([column(name) for name in balance], axis=1).astype(np.int64, copy=False)


def _mask(graph: Graph, name: str) -> np.ndarray:
    return {"train": graph.train_mask, "val": graph.val_mask, "test": graph.test_mask}[name]


def _random(graph: Graph, parts: int, options: CutOptions) -> np.ndarray:
    return np.random.default_rng(options.seed).permutation(_equal_ranges(graph.num_nodes, parts))


def _blocks(graph: Graph, parts: int, options: CutOptions) -> np.ndarray:
    return _equal_ranges(graph.num_nodes, parts)


def _equal_ranges(nodes: int, parts: int) -> np.ndarray:
    return (np.arange(nodes, dtype=np.int64) * parts // nodes).astype(np.int32)


def _metis(graph: Graph, parts: int, options: CutOptions) -> np.ndarray:
    indptr, indices, edge_weights = graph.indptr, graph.indices, None
    if not graph.symmetric:
        indptr, indices, edge_weights = symmetric_csr(indptr, indices)
    balance = enforceable(graph, parts, options.balance)
    return metis.kway(
        indptr,
        indices,
        parts,
        metis.MetisOptions(options.objective, options.tolerance, seed=options.seed),
        node_weights=None if balance == ("nodes",) else loads(graph, balance, slice(0, graph.num_nodes)),
        edge_weights=edge_weights,
    )


def _kaminpar(graph: Graph, parts: int, options: CutOptions) -> np.ndarray:
    indptr, indices, edge_weights = graph.indptr, graph.indices, None
    if not graph.symmetric:
        indptr, indices, edge_weights = symmetric_csr(indptr, indices)
    balance = enforceable(graph, parts, options.balance)
    each = loads(graph, balance, slice(0, graph.num_nodes))
    shares = (each / each.mean(axis=0)).sum(axis=1)  # one load: the sum of a node's shares of all
    weights = np.maximum(1, np.rint(_WEIGHT * shares / shares.mean()))
    limits = {"tolerance": options.tolerance, "seed": options.seed}
    return kaminpar(indptr, indices, parts, weights, edge_weights, **limits)  # type: ignore[arg-type]


def _ldg(graph: Graph, parts: int, options: CutOptions) -> np.ndarray:
    balance = enforceable(graph, parts, options.balance)
    return ldg(
        graph.indptr,
        graph.indices,
        parts,
        lambda rows: loads(graph, balance, rows),
        passes=options.passes,
        tolerance=options.tolerance,
    )


def _bytegnn(graph: Graph, parts: int, options: CutOptions, report: Report) -> np.ndarray:
    own = {name: getattr(options, name) for name in METHODS["bytegnn"].takes}
    return bytegnn(graph, parts, BlockOptions(**own), report)


METHODS = MappingProxyType(
    {
        "metis": Method(
            _metis,
            "METIS, multilevel: least cut or volume, several loads balanced (about 100 bytes of memory per edge)",
            ("seed", "balance", "objective", "tolerance"),
        ),
        "kaminpar": Method(
            _kaminpar,
            "KaMinPar, multilevel: METIS' cut in a quarter of its memory; one load, the sum of the shares (extra)",
            ("seed", "balance", "tolerance"),
        ),
        "ldg": Method(
            _ldg,
            "linear deterministic greedy: streams over the rows, for graphs METIS cannot hold (a few bytes per node)",
            ("balance", "tolerance", "passes"),
        ),
        "bytegnn": Method(
            _bytegnn,
            "ByteGNN: blocks of what labelled nodes read, for mini-batches where few nodes are labelled",
            ("assignment", "hops", "passes", "tolerance", "seed"),
            reports=True,
        ),
        "blocks": Method(_blocks, "equal contiguous ranges of the given order"),
        "random": Method(_random, "equal shares drawn at random: the worst cut, a baseline", ("seed",)),
    }
)
