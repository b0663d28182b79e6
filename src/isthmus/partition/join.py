"""Join several parts on one worker into one part, whose halo and readers are grouped by worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isthmus.graph.csr import pack, sources, targets
from isthmus.graph.graph import SparseRows
from isthmus.partition.adjacency import row_chunks
from isthmus.partition.part import Part


def join(parts: Sequence[Part], blocks: Sequence[range], ranges: Sequence[int]) -> Part:
    """Return the parts of one block as one part.

    ``blocks`` are the parts of every worker, in order; part k has the global ids ``ranges[k]:ranges[k+1]``.

    The inner nodes are those of all parts of the block, one part after the other; edges between them become inner. The
    rows of a link are ordered by (owner's part, reader's part, position in that part's halo), and a row that several
    parts read stands where it comes first: owner and reader derive that order without communication.
    """
    halo = _JoinedHalo.of(parts, blocks, ranges)
    sent = [_sent(parts, block) for block in blocks]
    vertex: dict[str, Any] = {}
    if parts[0].halo_legs is not None:  # a vertex-cut
        told = [_sent_legs(parts, block) for block in blocks]
        vertex = {"send_legs": np.concatenate(told), "halo_legs": halo.legs(parts)}
    edges = _vertex_edges if vertex else _edges
    return replace(
        parts[0],
        index=list(blocks).index(_block(parts)),
        halo_nodes=halo.nodes,
        halo_ptr=halo.ptr,
        halo_degree=halo.degree,
        halo_rows=halo.rows,
        send_rows=np.concatenate(sent),
        send_ptr=np.cumsum([0, *(len(rows) for rows in sent)]),
        cover=None,  # another halo, whose cover has to be found anew
        **vertex,
        **({} if len(parts) == 1 else {**_inner_rows(parts), **edges(parts, halo.columns)}),
    )


def _block(parts: Sequence[Part]) -> range:
    return range(parts[0].index, parts[-1].index + 1)


def _starts(parts: Sequence[Part]) -> np.ndarray:
    """Return the positions at which the inner nodes of each part begin, and at which those of the last end."""
    return np.cumsum([0, *(len(part.nodes) for part in parts)])


@dataclass(frozen=True)
class _JoinedHalo:
    """The halo nodes of the joined parts, each once."""

    nodes: np.ndarray
    degree: np.ndarray
    rows: np.ndarray  # the owners' local ids, in their joined parts
    ptr: np.ndarray
    columns: list[np.ndarray]  # per part, int32 [h]: its halo nodes' new ids, which count n inner nodes before the halo

    @staticmethod
    def of(parts: Sequence[Part], blocks: Sequence[range], ranges: Sequence[int]) -> _JoinedHalo:
        mine, starts = _block(parts), _starts(parts)
        columns = [np.empty(len(part.halo_nodes), np.int32) for part in parts]
        nodes, degree, rows, ptr = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int32)], [0]
        total = 0
        for block in blocks:
            for owner in block:
                groups = [slice(*part.halo_ptr[owner : owner + 2]) for part in parts]
                if owner in mine:
                    owned, first = parts[owner - mine.start], starts[owner - mine.start]
                    for part, column, group in zip(parts, columns, groups, strict=True):
                        column[group] = owned.send_rows[slice(*owned.send_ptr[part.index : part.index + 2])] + first
                    continue
                read = np.concatenate([part.halo_nodes[group] for part, group in zip(parts, groups, strict=True)])
                degrees = np.concatenate([part.halo_degree[group] for part, group in zip(parts, groups, strict=True)])
                local = np.concatenate([part.halo_rows[group] for part, group in zip(parts, groups, strict=True)])
                once, number = _distinct(read)
                rows.append(local[once] + np.int32(ranges[owner] - ranges[block.start]))
                nodes.append(read[once])
                degree.append(degrees[once])
                ends = np.cumsum([group.stop - group.start for group in groups])[:-1]
                for column, group, numbers in zip(columns, groups, np.split(number, ends), strict=True):
                    column[group] = numbers + starts[-1] + total
                total += len(once)
            ptr.append(total)
        once_each = [np.concatenate(pieces) for pieces in (nodes, degree, rows)]
        return _JoinedHalo(once_each[0], once_each[1], once_each[2], np.array(ptr, np.int64), columns)

    def legs(self, parts: Sequence[Part]) -> np.ndarray:
        """Return the legs of the joined mirrors, uint8 [h]: those that they have in any of the parts."""
        first = int(_starts(parts)[-1])
        legs = np.zeros(len(self.nodes), np.uint8)
        for part, column in zip(parts, self.columns, strict=True):
            outside = column >= first
            np.bitwise_or.at(legs, column[outside] - first, _legs_of(part.halo_legs)[outside])
        return legs


def _legs_of(legs: np.ndarray | None) -> np.ndarray:
    assert legs is not None, "only a vertex-cut has legs"
    return legs


def _sent_legs(parts: Sequence[Part], reader: range) -> np.ndarray:
    """Return the legs of the rows of `_sent`, uint8."""
    found = [np.empty(0, np.uint8)]
    for part in parts:
        if reader != _block(parts):
            group = slice(part.send_ptr[reader.start], part.send_ptr[reader.stop])
            once, number = _distinct(part.send_rows[group])
            legs = np.zeros(len(once), np.uint8)
            np.bitwise_or.at(legs, number, _legs_of(part.send_legs)[group])
            found.append(legs)
    return np.concatenate(found)


def _sent(parts: Sequence[Part], reader: range) -> np.ndarray:
    """Return the joined rows that the worker of a block reads, in the order of its halo."""
    rows = [np.empty(0, np.int32)]
    for part, start in zip(parts, _starts(parts), strict=False):
        if reader != _block(parts):
            read = part.send_rows[part.send_ptr[reader.start] : part.send_ptr[reader.stop]]
            rows.append(read[_distinct(read)[0]] + np.int32(start))
    return np.concatenate(rows)


def _distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the position of each distinct value's first occurrence, in order, and every value's number among them."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return first[order], number[inverse]


def _inner_rows(parts: Sequence[Part]) -> dict[str, Any]:
    """Return all arrays that have one entry per inner node."""
    names = ["nodes", "degree", "x", "y", "train_mask", "val_mask", "test_mask"]
    names += [name for name in ("node_type", "ids") if getattr(parts[0], name) is not None]
    names += ["held_out"] if parts[0].held_out is not None else []
    joined: dict[str, Any] = {}
    for name in names:
        pieces = [getattr(part, name) for part in parts]
        joined[name] = SparseRows.stack(pieces) if isinstance(pieces[0], SparseRows) else np.concatenate(pieces)
    return joined


def _edges(parts: Sequence[Part], columns: Sequence[np.ndarray]) -> dict[str, Any]:
    """Return inner and halo edges, columns ascending in every row; works in chunks, so that temporaries stay small."""
    starts = _starts(parts)
    nodes, edges = int(starts[-1]), sum(len(part.inner_indices) + len(part.halo_indices) for part in parts)
    cut = sum(int((column[part.halo_indices] >= nodes).sum()) for part, column in zip(parts, columns, strict=True))
    inner = _CsrWriter(nodes, edges - cut, parts[0].inner_edge_attr)
    halo = _CsrWriter(nodes, cut, parts[0].halo_edge_attr)
    for part, start, column in zip(parts, starts, columns, strict=False):
        lengths = np.diff(part.inner_indptr), np.diff(part.halo_indptr)
        for chunk in row_chunks(lengths[0] + lengths[1]):
            count = chunk.stop - chunk.start
            near, far = (slice(ptr[chunk.start], ptr[chunk.stop]) for ptr in (part.inner_indptr, part.halo_indptr))
            rows = np.concatenate([np.repeat(np.arange(count, dtype=np.int32), length[chunk]) for length in lengths])
            cols = np.concatenate([part.inner_indices[near] + np.int32(start), column[part.halo_indices[far]]])
            keys, attributes = pack(cols, rows), None
            if part.inner_edge_attr is None or part.halo_edge_attr is None:
                keys.sort()
            else:
                order = np.argsort(keys, kind="stable")
                keys = keys[order]
                attributes = np.concatenate([part.inner_edge_attr[near], part.halo_edge_attr[far]])[order]
            rows, cols = targets(keys), sources(keys)
            inner.append(count, rows, cols, cols < nodes, attributes)
            halo.append(count, rows, cols - np.int32(nodes), cols >= nodes, attributes)
    return {**inner.arrays("inner"), **halo.arrays("halo")}


def _vertex_edges(parts: Sequence[Part], columns: Sequence[np.ndarray]) -> dict[str, Any]:
    """Return the edges of a vertex-cut: into inner nodes, split by where they begin, and into mirrors."""
    starts = _starts(parts)
    nodes = int(starts[-1])
    mirrors = max((int(column.max(initial=nodes - 1)) for column in columns), default=nodes - 1) + 1 - nodes
    keys, attributes = [], []
    for part, start, column in zip(parts, starts, columns, strict=False):
        here = np.concatenate([np.arange(len(part.nodes), dtype=np.int32) + np.int32(start), column])  # new local ids
        count = len(part.nodes)
        for side, first in (("inner", 0), ("halo", 0), ("mirror", count)):
            indptr, indices = getattr(part, f"{side}_indptr"), getattr(part, f"{side}_indices")
            rows = np.repeat(here[first : first + len(indptr) - 1], np.diff(indptr))
            keys.append(pack(here[indices + np.int32(count if side == "halo" else 0)], rows))
            attributes.append(getattr(part, f"{side}_edge_attr"))
    joined = np.concatenate(keys)
    order = np.argsort(joined, kind="stable")
    rows, cols = targets(joined[order]), sources(joined[order])
    values = None if attributes[0] is None else np.concatenate(attributes)[order]
    inner, near = rows < nodes, cols < nodes
    result: dict[str, Any] = {}
    for side, chosen, row, col, count in (
        ("inner", inner & near, 0, 0, nodes),
        ("halo", inner & ~near, 0, nodes, nodes),
        ("mirror", ~inner, nodes, 0, mirrors),
    ):
        counts = np.bincount(rows[chosen] - row, minlength=count)
        result[f"{side}_indptr"] = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        result[f"{side}_indices"] = cols[chosen] - np.int32(col)
        result[f"{side}_edge_attr"] = None if values is None else values[chosen]
    return result


class _CsrWriter:
    """A CSR matrix that is filled from the first row to the last."""

    def __init__(self, rows: int, edges: int, like: np.ndarray | None):
        self.indptr, self.indices = np.zeros(rows + 1, np.int64), np.empty(edges, np.int32)
        self.attributes = None if like is None else np.empty((edges, *like.shape[1:]), like.dtype)
        self.row = self.edge = 0

    def append(
        self, count: int, rows: np.ndarray, cols: np.ndarray, chosen: np.ndarray, attributes: np.ndarray | None
    ) -> None:
        """Append ``count`` rows with the chosen ones of the given edges, in order."""
        ends = self.edge + np.cumsum(np.bincount(rows[chosen], minlength=count))
        self.indptr[self.row + 1 : self.row + count + 1] = ends
        self.indices[self.edge : ends[-1]] = cols[chosen]
        if self.attributes is not None and attributes is not None:
            self.attributes[self.edge : ends[-1]] = attributes[chosen]
        self.row, self.edge = self.row + count, int(ends[-1])

    def arrays(self, side: str) -> dict[str, Any]:
        return {
            f"{side}_indptr": self.indptr,
            f"{side}_indices": self.indices,
            f"{side}_edge_attr": self.attributes,
        }
