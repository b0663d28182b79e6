"""The neighbours that mini-batches are drawn from: whose they are, in an order that no partition changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from isthmus import kernels
from isthmus.errors import InputError
from isthmus.graph.graph import Graph
from isthmus.kernels import Csr, Drawn, Spans
from isthmus.partition.book import Book
from isthmus.partition.part import Part
from isthmus.shard.load import as_tensor

DIRECTIONS = ("in", "out", "both")
"""Whose neighbours: sources of a node's in-edges, targets of its out-edges, or both, each neighbour once."""

_CHUNK = 1 << 18  # rows that are put together at a time, so that temporaries stay small


@dataclass(frozen=True)
class Structure:
    """The neighbours of some nodes. Row r lists those of one node, ascending by original id, as local numbers.

    Rows are the nodes with book ids ``first`` … ``first + rows - 1`` (of a graph without parts: with these ids); their
    local numbers are 0 … rows - 1, and other nodes that they name have the numbers after them.
    """

    pattern: Csr  # rows × columns
    original: Tensor | None = None  # int64 [columns], original ids; None: local numbers are original ids
    first: int = 0
    outside: Tensor | None = None  # int64 [columns - rows], book ids of the columns that are no rows
    data: Tensor | None = None  # [edges] or [edges, D], what the edges carry
    edge_ids: Tensor | None = None  # int64 [edges], the numbers of the edges in the source, or
    edge_starts: Tensor | None = None  # int64 [rows], those of the rows' first edges; neither: their places here

    @staticmethod
    def of_graph(graph: Graph, direction: str = "in", *, data: bool = False) -> Structure:
        """Return the structure of a whole graph in memory; ``data``: with what its edges carry."""
        _fits(graph.num_nodes, graph.name)
        pattern = Csr(as_tensor(graph.indptr), as_tensor(graph.indices).to(torch.int32), graph.num_nodes)
        carried = as_tensor(_carried(graph.edge_attr, graph.name)) if data else None
        return Structure(pattern, data=carried).turned("in" if graph.symmetric and not data else direction)

    @staticmethod
    def of_edges(edge_index: Tensor, num_nodes: int, direction: str = "in", data: Tensor | None = None) -> Structure:
        """Return the structure of an edge list in PyG's form, int64 [2, E]; its self loops and parallel edges stay.

        ``data`` [E] or [E, D]: what the edges carry.
        """
        _fits(max(num_nodes, edge_index.shape[1]), "edge_index")
        source, target = edge_index if direction != "out" else edge_index.flip(0)
        one_each = Csr(torch.arange(len(target) + 1), target.to(torch.int32), num_nodes)
        by_target, order = kernels.transpose(one_each)
        pattern, place = kernels.sort_rows(
            Csr(by_target.indptr, source[order].to(torch.int32), num_nodes), None, order=True
        )
        order = order[place]
        found = Structure(pattern, data=None if data is None else data[order], edge_ids=order)
        return found.turned("both") if direction == "both" else found

    @staticmethod
    def of_book(book: Book, parts: range | None = None, *, data: bool = False, numbered: bool = True) -> Structure:
        """Return the in-edges of the nodes of some parts (default: all), which lie one after another.

        With all parts, local numbers are book ids. ``data``: with what the edges carry, in memory. ``numbered``: drawn
        edges of all parts can be numbered as in the graph before it was cut, for 8 bytes a node.
        """
        parts = range(book.num_parts) if parts is None else parts
        if parts.step != 1 or not 0 <= parts.start < parts.stop <= book.num_parts:
            raise InputError(f"{book.folder} has {book.num_parts} parts, not {parts}: give some that follow each other")
        first, last = book.ranges[parts.start], book.ranges[parts.stop]
        pieces = [book.part(k) for k in parts]
        halo = [_halo_ids(part, book.ranges) for part in pieces]
        beyond = [ids[(ids < first) | (ids >= last)] for ids in halo]
        outside = np.unique(np.concatenate([np.empty(0, np.int64), *beyond]))
        names = _names(pieces, halo, outside)
        _fits(len(names), str(book.folder))
        ends = [as_tensor(part.inner_indptr) + as_tensor(part.halo_indptr) for part in pieces]
        counts = torch.cat([own.diff() for own in ends])
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        columns, carries = torch.empty(int(indptr[-1]), dtype=torch.int32), list[Tensor | None]()
        for part, ids in zip(pieces, halo, strict=True):  # one after another, into memory that stays: it is most of all
            row = book.ranges[part.index] - first
            own = columns[int(indptr[row]) : int(indptr[row + len(part.nodes)])]
            carries.append(_write_rows(own, part, row, _local(ids, first, last, outside), data))
        pattern, order = kernels.sort_rows(Csr(indptr, columns, len(names)), names, order=data, in_place=True)
        carried = torch.cat([own for own in carries if own is not None])[order] if data else None
        starts = _edge_starts(names, indptr.diff()) if numbered and not len(outside) else None
        return Structure(pattern, names, first, torch.from_numpy(outside), carried, edge_starts=starts)

    @property
    def num_rows(self) -> int:
        return self.pattern.num_rows

    @cached_property
    def nodes(self) -> Tensor:
        """The book ids of all columns, int64 [columns]."""
        own = torch.arange(self.first, self.first + self.num_rows)
        return own if self.outside is None else torch.cat([own, self.outside])

    @property
    def is_whole(self) -> bool:
        """Whether local numbers are book ids."""
        return self.first == 0 and self.num_rows == self.pattern.num_cols

    @property
    def degree(self) -> Tensor:
        """The number of neighbours of every row, int64 [rows]."""
        return self.pattern.indptr.diff()

    @cached_property
    def weight(self) -> Tensor:
        """The weights of the edges as draws compare them, float32 [edges]: the one number that each carries."""
        if self.data is None:
            raise InputError("draws by weight need edge weights: build the structure with data=True")
        weight = _one_number(self.data).to(torch.float32)
        if not bool(((weight >= 0) & weight.isfinite()).all()):
            raise InputError("edges have weights that are negative or not finite: draws by weight need others")
        return weight

    @cached_property
    def total_weight(self) -> Tensor:
        """The sum of the weights of every row's edges as draws compare them, float64 [rows]."""
        return self._summed(self.weight)

    @cached_property
    def weighted_degree(self) -> Tensor:
        """The sum of the weights of every row's edges, float64 [rows]."""
        assert self.data is not None, "this structure has no weights"
        return self._summed(_one_number(self.data))

    def _summed(self, of_edges: Tensor) -> Tensor:
        return torch.zeros(self.num_rows, dtype=torch.float64).index_add_(0, self.pattern.edge_rows, of_edges.double())

    def rows_of(self, nodes: Tensor) -> Tensor:
        """Return the rows of nodes given by book id, int32; refuse a node that has none here."""
        rows = nodes - self.first
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < self.num_rows:
            lost = nodes[(rows < 0) | (rows >= self.num_rows)][0]
            span = f"{self.first} to {self.first + self.num_rows - 1}"
            raise InputError(f"node {int(lost)} cannot be expanded here, only {span}: ask its owner")
        return rows.to(torch.int32)

    def spans(self, rows: Tensor) -> Spans:
        """Return the edges of some rows (int32), keyed by the original ids of their nodes."""
        ids = rows.long() if self.original is None else kernels.gather_ids(self.original, rows)
        return Spans(*kernels.row_spans(self.pattern, rows), ids)

    def edge_ids_of(self, rows: Tensor, drawn: Drawn) -> Tensor:
        """Return the numbers that the drawn edges of some rows (int32) have in the source, int64 [e].

        In a graph cut into parts, edges are numbered by (target, source) in original ids, as in the graph before.
        """
        assert drawn.numbers is not None
        if self.edge_ids is not None:
            return self.edge_ids[drawn.numbers]
        if self.edge_starts is None:
            if not self.is_whole:
                raise InputError("edge ids are known only where all parts are: build the structure of all parts")
            return drawn.numbers
        shift = self.edge_starts[rows.long()] - self.pattern.indptr[rows.long()]
        return drawn.numbers + torch.repeat_interleave(shift, drawn.indptr.diff())

    def turned(self, direction: str) -> Structure:
        """Return the structure of a whole graph for another direction, from that of its in-edges."""
        if direction not in DIRECTIONS:
            raise InputError(f"unknown direction {direction!r}: use {', '.join(DIRECTIONS)}")
        if direction == "in":
            return self
        back, order = kernels.transpose(self.pattern)
        ids = torch.arange(self.pattern.num_edges) if self.edge_ids is None else self.edge_ids
        out = replace(self, pattern=back, edge_ids=ids[order], data=None if self.data is None else self.data[order])
        if direction == "out":
            return out
        return _union(replace(self, edge_ids=ids), out)


def _union(one: Structure, other: Structure) -> Structure:
    """Return the neighbours of both, each once: of a pair of edges with the same neighbour the first stays."""
    every = torch.cat([one.pattern.edge_rows, other.pattern.edge_rows])
    columns = torch.cat([one.pattern.indices, other.pattern.indices])
    order = torch.argsort(every * one.pattern.num_cols + columns, stable=True)
    every, columns = every[order], columns[order]
    new = torch.ones(len(order), dtype=torch.bool)
    new[1:] = (every[1:] != every[:-1]) | (columns[1:] != columns[:-1])
    counts = torch.bincount(every[new], minlength=one.num_rows)
    pattern = Csr(torch.cat([counts.new_zeros(1), counts.cumsum(0)]), columns[new], one.pattern.num_cols)
    assert one.edge_ids is not None
    assert other.edge_ids is not None
    data = None
    if one.data is not None and other.data is not None:
        data = torch.cat([one.data, other.data])[order][new]
    return replace(one, pattern=pattern, edge_ids=torch.cat([one.edge_ids, other.edge_ids])[order][new], data=data)


def _edge_starts(names: Tensor, degree: Tensor) -> Tensor:
    """Return the number of each row's first edge if rows were in the order of their names."""
    order = names.argsort()
    starts = torch.empty_like(degree)
    starts[order] = degree[order].cumsum(0) - degree[order]
    return starts


def _halo_ids(part: Part, ranges: tuple[int, ...]) -> np.ndarray:
    """Return the book ids of a part's halo nodes, int64 [h]."""
    return part.halo_rows.astype(np.int64) + np.repeat(np.asarray(ranges[:-1]), np.diff(part.halo_ptr))


def _local(ids: np.ndarray, first: int, last: int, outside: np.ndarray) -> Tensor:
    """Return the local numbers of nodes given by book id, int32."""
    inside = (ids >= first) & (ids < last)
    return torch.from_numpy(
        np.where(inside, ids - first, last - first + np.searchsorted(outside, ids)).astype(np.int32)
    )


def _names(parts: list[Part], halo: list[np.ndarray], outside: np.ndarray) -> Tensor:
    """Return the original ids of all columns, int64."""
    of_outside = np.empty(len(outside), np.int64)
    for part, ids in zip(parts, halo, strict=True):
        at = np.searchsorted(outside, ids)
        here = at < len(outside)
        here[here] = outside[at[here]] == ids[here]
        of_outside[at[here]] = part.halo_nodes[here]
    return torch.from_numpy(np.concatenate([*(part.nodes for part in parts), of_outside]))


def _write_rows(columns: Tensor, part: Part, shift: int, halo: Tensor, data: bool) -> Tensor | None:
    """Write the columns of a part's rows, inner edges before halo edges, not yet in order; return their data."""
    inner = Csr(as_tensor(part.inner_indptr), as_tensor(part.inner_indices), len(part.nodes))
    outer = Csr(as_tensor(part.halo_indptr), as_tensor(part.halo_indices), len(part.halo_nodes))
    carried = None
    if data:
        like = as_tensor(_carried(part.inner_edge_attr, f"part {part.index}"))
        carried = like.new_empty(len(columns), *like.shape[1:])
    sides = ((inner, outer.indptr[:-1], part.inner_edge_attr), (outer, inner.indptr[1:], part.halo_edge_attr))
    for side, before, attributes in sides:
        own = None if attributes is None or carried is None else as_tensor(attributes)
        for a in range(0, side.num_rows, _CHUNK):
            ends = side.indptr[a : a + _CHUNK + 1]
            some = slice(int(ends[0]), int(ends[-1]))
            at = torch.repeat_interleave(before[a : a + _CHUNK], ends.diff()) + torch.arange(some.start, some.stop)
            columns[at] = side.indices[some] + shift if side is inner else halo[side.indices[some].long()]
            if own is not None and carried is not None:
                carried[at] = own[some]
    return carried


def _carried(attributes: np.ndarray | None, where: str) -> np.ndarray:
    if attributes is None:
        raise InputError(f"{where} has no edge attributes: draws by weight need one number per edge")
    return attributes


def _one_number(data: Tensor) -> Tensor:
    """Return the one number that every edge carries, [edges]."""
    if data.ndim > 1 and data.shape[1] != 1:
        raise InputError(f"edges have {data.shape[1]} attributes each: draws by weight need one number per edge")
    return data.reshape(-1)


def _fits(count: int, where: str) -> None:
    if count >= 2**31:
        raise InputError(f"{where} has {count:,} nodes here, and 2^31 at most can be numbered: use more parts")
