"""Write the parts of a graph to disk: relabelled, split by where edges end, streamed so that memory stays bounded."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isthmus.files import sealed
from isthmus.files.array_file import ArrayFile, FileEntry
from isthmus.files.atomic import folder_at_once
from isthmus.graph.csr import pack, sources, targets
from isthmus.graph.graph import Graph, SparseRows
from isthmus.kernels import Csr
from isthmus.partition.adjacency import row_chunks, take_rows
from isthmus.partition.book import FORMAT, VERSION, Book, is_parts_folder
from isthmus.partition.border import Border, Layout, Relabelling, find_border, rows_of
from isthmus.partition.cover import gathered_targets, halo_cover, lends
from isthmus.partition.part import PartInfo
from isthmus.partition.quality import Legs, quality

CHUNK_BYTES = 64 << 20  # bytes of rows of x copied at a time


def write_parts(
    graph: Graph,
    layout: Layout | Relabelling,
    out: str | os.PathLike[str],
    *,
    method: str,
    options: dict[str, Any],
    overwrite: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> Book:
    """Write the parts folder ``out`` (format: docs/partition.md), all or nothing, and open it."""
    layout = Layout(layout) if isinstance(layout, Relabelling) else layout
    target, labels = Path(out), layout.labels
    count = labels.num_parts
    report = progress or (lambda stage, done, total: None)
    with folder_at_once(target, replace=overwrite, ours=is_parts_folder, what="a parts folder") as folder:
        borders = []
        for k in range(count):
            borders.append(find_border(graph, layout, k))
            report("find mirrors", k + 1, count)
        parts, splits = [], []
        legs = Legs.of(borders)
        for k in range(count):
            (folder / f"part-{k}").mkdir()
            files = _write_part(graph, layout, borders, k, folder / f"part-{k}")
            if layout.cut == "cover":
                files |= _write_cover(borders, k, folder / f"part-{k}", legs)
            nodes = labels.old[labels.ranges[k] : labels.ranges[k + 1]]
            border = borders[k]
            boundary = len(np.unique(np.concatenate(_sent(borders, labels, k))))
            edges = border.inner_edges, border.halo_edges
            parts.append(PartInfo(len(nodes), len(border.halo), *edges, boundary, files, border.mirror_edges))
            splits.append({name: mask[nodes].sum(axis=0) for name, mask in _masks(graph).items()})
            report("write parts", k + 1, count)
        book = Book(
            folder=folder,
            name=graph.name,
            nodes=graph.num_nodes,
            edges=graph.num_edges,
            features=graph.num_features,
            classes=graph.num_classes,
            multilabel=graph.multilabel,
            regression=graph.regression,
            splits=graph.num_splits,
            cut=layout.cut,
            method=method,
            options=options,
            symmetric=graph.symmetric,
            ranges=tuple(int(r) for r in labels.ranges),
            train=_counts(graph.train_mask),
            val=_counts(graph.val_mask),
            test=_counts(graph.test_mask),
            quality=quality(parts, legs, {name: np.stack([s[name] for s in splits]) for name in splits[0]}),
            parts=tuple(parts),
        )
        _write_json(folder / "book.json", sealed({"format": FORMAT, "version": VERSION, **book.as_dict()}))
    return Book.read(target)


def _sent(borders: list[Border], labels: Relabelling, k: int) -> list[np.ndarray]:
    """Return the local ids of part k that each other part mirrors."""
    return [border.halo[border.ptr[k] : border.ptr[k + 1]] - labels.ranges[k] for border in borders]


def _put(folder: Path, name: str, array: np.ndarray, dtype: Any) -> dict[str, FileEntry]:
    file = ArrayFile(folder / f"{name}.npy", dtype, array.shape)
    file.append(array)
    return {f"{name}.npy": file.close()}


def _write_part(graph: Graph, layout: Layout, borders: list[Border], k: int, folder: Path) -> dict[str, FileEntry]:
    """Write all files of a part that every cut has, and the legs of the mirrors of a vertex-cut."""
    labels, border = layout.labels, borders[k]
    nodes = labels.old[labels.ranges[k] : labels.ranges[k + 1]]
    files: dict[str, FileEntry] = {}

    def put(name: str, array: np.ndarray, dtype: Any) -> None:
        files.update(_put(folder, name, array, dtype))

    degree = np.diff(graph.indptr)
    send, halo_nodes = _sent(borders, labels, k), labels.old[border.halo]
    put("nodes", nodes, np.int64)
    put("halo_nodes", halo_nodes, np.int64)
    put("halo_ptr", border.ptr, np.int64)
    put("halo_rows", border.halo - np.repeat(labels.ranges[:-1], np.diff(border.ptr)), np.int32)
    put("send_rows", np.concatenate(send), np.int32)
    put("send_ptr", np.cumsum([0, *(len(rows) for rows in send)]), np.int64)
    put("degree", degree[nodes], np.int64)
    put("halo_degree", degree[halo_nodes], np.int64)
    if layout.edge_part is not None:
        put("halo_legs", border.legs, np.uint8)
        put("send_legs", np.concatenate([b.legs[b.ptr[k] : b.ptr[k + 1]] for b in borders]), np.uint8)
    del degree, halo_nodes
    files |= _write_edges(graph, layout, border, k, folder)
    files |= _write_features(graph.x, nodes, folder)
    put("y", graph.y[nodes], graph.y.dtype if graph.regression else np.uint8 if graph.multilabel else np.int64)
    for name, mask in _masks(graph).items():
        put(f"{name}_mask", mask[nodes], bool)
    for name, of_node in (("node_type", graph.node_type), ("ids", graph.ids)):
        if of_node is not None:
            put(name, of_node[nodes], of_node.dtype)
    if graph.held_out is not None:
        table = np.concatenate([labels.new[graph.held_out[:, :2]], graph.held_out[:, 2:]], axis=1)
        put("held_out", table[(table[:, 0] >= labels.ranges[k]) & (table[:, 0] < labels.ranges[k + 1])], np.int64)
    return files


def _write_edges(graph: Graph, layout: Layout, border: Border, k: int, folder: Path) -> dict[str, FileEntry]:
    """Write the CSRs of part k, columns ascending in each row, and edge attributes in the same order.

    Edges into inner nodes are split by where they begin; those into mirrors, of a vertex-cut, are one CSR.
    """
    first, last = (int(end) for end in layout.labels.ranges[k : k + 2])
    place = np.zeros(graph.num_nodes, np.int32)  # local id of every node that is here: mirrors after inner nodes
    place[first:last] = np.arange(last - first, dtype=np.int32)
    place[border.halo] = np.arange(last - first, last - first + len(border.halo), dtype=np.int32)
    inner = _CsrFiles(folder, "inner", last - first, border.inner_edges, graph.edge_attr)
    halo = _CsrFiles(folder, "halo", last - first, border.halo_edges, graph.edge_attr)
    for _, count, rows, columns, positions in rows_of(graph, layout, layout.labels.old[first:last], k):
        rows, columns, positions = _sorted(rows, place[columns], positions, graph.edge_attr is not None)
        inside = columns < last - first
        inner.append(count, rows[inside], columns[inside], positions[inside] if len(positions) else positions)
        outside = columns[~inside] - np.int32(last - first)
        halo.append(count, rows[~inside], outside, positions[~inside] if len(positions) else positions)
    files = inner.close() | halo.close()
    if layout.edge_part is not None:
        mirror = _CsrFiles(folder, "mirror", len(border.halo), border.mirror_edges, graph.edge_attr)
        for _, count, rows, columns, positions in rows_of(graph, layout, layout.labels.old[border.halo], k):
            mirror.append(count, *_sorted(rows, place[columns], positions, graph.edge_attr is not None))
        files |= mirror.close()
    return files


def _sorted(
    rows: np.ndarray, columns: np.ndarray, positions: np.ndarray, keep: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return edges sorted by row and column, and with ``keep`` their positions in that order (else none)."""
    keys = pack(columns, rows)
    if keep:
        order = np.argsort(keys, kind="stable")  # parallel edges stay in the order of the graph
        keys, positions = keys[order], positions[order]
    else:
        keys.sort()
        positions = positions[:0]
    return targets(keys), sources(keys), positions


class _CsrFiles:
    """The files of a CSR that is written row by row, and of the attributes of its edges."""

    def __init__(self, folder: Path, side: str, rows: int, edges: int, attributes: np.ndarray | None):
        self.attributes, self.done = attributes, 0
        self.files = {
            f"{side}_indptr": ArrayFile(folder / f"{side}_indptr.npy", np.int64, (rows + 1,)),
            f"{side}_indices": ArrayFile(folder / f"{side}_indices.npy", np.int32, (edges,)),
        }
        if attributes is not None:
            shape, name = (edges, *attributes.shape[1:]), f"{side}_edge_attr"
            self.files[name] = ArrayFile(folder / f"{name}.npy", attributes.dtype, shape)
        self.ends, self.columns, *self.values = self.files.values()
        self.ends.append(np.zeros(1, np.int64))

    def append(self, count: int, rows: np.ndarray, columns: np.ndarray, positions: np.ndarray) -> None:
        """Append ``count`` rows with these edges, in order; ``positions`` are those of the edges in the graph."""
        if count == 0:
            return
        ends = self.done + np.cumsum(np.bincount(rows, minlength=count))
        self.done = int(ends[-1])
        self.ends.append(ends)
        self.columns.append(columns)
        if self.attributes is not None:
            self.values[0].append(self.attributes[positions])

    def close(self) -> dict[str, FileEntry]:
        return {f"{name}.npy": file.close() for name, file in self.files.items()}


def _write_cover(borders: list[Border], k: int, folder: Path, legs: Legs) -> dict[str, FileEntry]:
    """Write which halo nodes of part k are covered; count in ``legs`` the rows and the lent edges of both legs."""
    indptr, indices = (np.load(folder / f"halo_{name}.npy", mmap_mode="c") for name in ("indptr", "indices"))
    halo = Csr(torch.from_numpy(indptr), torch.from_numpy(indices), len(borders[k].halo))
    loads = torch.tensor([border.inner_edges + border.halo_edges for border in borders])
    ptr = borders[k].ptr.tolist()
    covered = halo_cover(halo, ptr, lends(loads, k))
    scattered, owner = covered.numpy(), np.repeat(np.arange(len(borders)), np.diff(ptr))
    legs.scatter[:, k] = np.bincount(owner[scattered], minlength=len(borders))
    legs.gather[:, k] = [len(rows) for rows in gathered_targets(halo, ptr, covered)]
    legs.lent[:, k] = np.bincount(owner[indices[~scattered[indices]]], minlength=len(borders))
    return _put(folder, "cover", scattered, bool)


def _write_features(x: np.ndarray | SparseRows, nodes: np.ndarray, folder: Path) -> dict[str, FileEntry]:
    if isinstance(x, SparseRows):
        lengths = x.indptr[nodes + 1] - x.indptr[nodes]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        starts = ArrayFile(folder / "x_indptr.npy", np.int64, indptr.shape)
        starts.append(indptr)
        columns = ArrayFile(folder / "x_indices.npy", np.int32, (int(indptr[-1]),))
        values = ArrayFile(folder / "x_data.npy", x.dtype, (int(indptr[-1]),))
        for chunk in row_chunks(lengths):
            _, positions = take_rows(x.indptr, nodes[chunk])
            columns.append(x.indices[positions])
            values.append(x.data[positions])
        return {"x_indptr.npy": starts.close(), "x_indices.npy": columns.close(), "x_data.npy": values.close()}
    file = ArrayFile(folder / "x.npy", x.dtype, (len(nodes), x.shape[1]))
    step = max(1, CHUNK_BYTES // max(1, x.shape[1] * x.dtype.itemsize))
    for first in range(0, len(nodes), step):
        file.append(x[nodes[first : first + step]])
    return {"x.npy": file.close()}


def _masks(graph: Graph) -> dict[str, np.ndarray]:
    return {"train": graph.train_mask, "val": graph.val_mask, "test": graph.test_mask}


def _counts(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(int(n) for n in mask.sum(axis=0))


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with path.open("w") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
