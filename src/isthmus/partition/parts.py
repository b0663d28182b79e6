"""Write the parts of a graph to disk: relabelled, split into inner and halo, streamed so that memory stays bounded."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.files import sealed
from isthmus.files.array_file import ArrayFile, FileEntry
from isthmus.files.atomic import folder_at_once
from isthmus.graph.csr import pack, sources, targets
from isthmus.graph.graph import Graph, SparseRows
from isthmus.partition.adjacency import row_chunks, take_rows
from isthmus.partition.book import FORMAT, VERSION, Book, is_parts_folder
from isthmus.partition.part import PartInfo
from isthmus.partition.quality import quality

CHUNK_BYTES = 64 << 20  # bytes of rows of x copied at a time


@dataclass(frozen=True)
class Relabelling:
    """The new numbers of the nodes, called global ids: part k owns ``ranges[k]:ranges[k+1]``."""

    old: np.ndarray  # int64 [N]: original id of every global id
    ranges: np.ndarray  # int64 [P+1]
    new: np.ndarray  # int32 [N]: global id of every original id

    @staticmethod
    def of(parts: list[np.ndarray]) -> Relabelling:
        """Number the nodes part by part; ``parts`` are the original ids of each, in the order inside the part."""
        old = np.concatenate(parts).astype(np.int64, copy=False)
        new = np.full(len(old), -1, np.int32)
        new[old] = np.arange(len(old), dtype=np.int32)
        if (new < 0).any():
            raise ValueError("parts must hold every node exactly once")
        return Relabelling(old, np.concatenate([[0], np.cumsum([len(p) for p in parts])]), new)


@dataclass(frozen=True)
class Border:
    """The nodes that part k reads from others: its halo, ascending in global id and hence grouped by owner."""

    halo: np.ndarray  # int32 [h], global ids
    ptr: np.ndarray  # int64 [P+1]: the halo rows owned by q are halo[ptr[q]:ptr[q+1]]
    inner_edges: int
    halo_edges: int


def write_parts(
    graph: Graph,
    labels: Relabelling,
    out: str | os.PathLike[str],
    *,
    method: str,
    options: dict[str, Any],
    overwrite: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> Book:
    """Write the parts folder ``out`` (format: docs/partition.md), all or nothing, and open it."""
    target = Path(out)
    count = len(labels.ranges) - 1
    report = progress or (lambda stage, done, total: None)
    with folder_at_once(target, replace=overwrite, ours=is_parts_folder, what="a parts folder") as folder:
        borders = []
        for k in range(count):
            borders.append(find_border(graph, labels, k))
            report("find halo", k + 1, count)
        parts, splits = [], []
        for k in range(count):
            (folder / f"part-{k}").mkdir()
            parts.append(_write_part(graph, labels, borders, k, folder / f"part-{k}"))
            nodes = labels.old[labels.ranges[k] : labels.ranges[k + 1]]
            splits.append({name: mask[nodes].sum(axis=0) for name, mask in _masks(graph).items()})
            report("write parts", k + 1, count)
        sent = np.sum([np.diff(border.ptr) for border in borders], axis=0)
        book = Book(
            folder=folder,
            name=graph.name,
            nodes=graph.num_nodes,
            edges=graph.num_edges,
            features=graph.num_features,
            classes=graph.num_classes,
            multilabel=graph.multilabel,
            splits=graph.num_splits,
            cut="edge",
            method=method,
            options=options,
            symmetric=graph.symmetric,
            ranges=tuple(int(r) for r in labels.ranges),
            train=_counts(graph.train_mask),
            val=_counts(graph.val_mask),
            test=_counts(graph.test_mask),
            quality=quality(parts, sent, {name: np.stack([s[name] for s in splits]) for name in splits[0]}),
            parts=tuple(parts),
        )
        _write_json(folder / "book.json", sealed({"format": FORMAT, "version": VERSION, **book.as_dict()}))
    return Book.read(target)


def find_border(graph: Graph, labels: Relabelling, k: int) -> Border:
    """Return the halo of part k, and how many of its edges are inner→inner and halo→inner."""
    first, last = labels.ranges[k], labels.ranges[k + 1]
    read = np.zeros(graph.num_nodes, bool)
    total = outside_edges = 0
    for _, _, columns, _ in _rows_of(graph, labels, k):
        outside = columns[(columns < first) | (columns >= last)]
        read[outside] = True
        total += len(columns)
        outside_edges += len(outside)
    halo = np.flatnonzero(read).astype(np.int32)
    return Border(halo, np.searchsorted(halo, labels.ranges).astype(np.int64), total - outside_edges, outside_edges)


def _rows_of(graph: Graph, labels: Relabelling, k: int) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield part k in chunks: number of rows; of each edge, row, column (global id), position in the graph."""
    nodes = labels.old[labels.ranges[k] : labels.ranges[k + 1]]
    for chunk in row_chunks(graph.indptr[nodes + 1] - graph.indptr[nodes]):
        lengths, positions = take_rows(graph.indptr, nodes[chunk])
        rows = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        yield len(lengths), rows, labels.new[graph.indices[positions]], positions


def _write_part(graph: Graph, labels: Relabelling, borders: list[Border], k: int, folder: Path) -> PartInfo:
    first, last = int(labels.ranges[k]), int(labels.ranges[k + 1])
    nodes, border = labels.old[first:last], borders[k]
    files: dict[str, FileEntry] = {}

    def put(name: str, array: np.ndarray, dtype: Any) -> None:
        file = ArrayFile(folder / f"{name}.npy", dtype, array.shape)
        file.append(array)
        files[f"{name}.npy"] = file.close()

    degree = np.diff(graph.indptr)
    send = [b.halo[b.ptr[k] : b.ptr[k + 1]] - first for b in borders]
    halo_nodes = labels.old[border.halo]
    put("nodes", nodes, np.int64)
    put("halo_nodes", halo_nodes, np.int64)
    put("halo_ptr", border.ptr, np.int64)
    put("halo_rows", border.halo - np.repeat(labels.ranges[:-1], np.diff(border.ptr)), np.int32)
    put("send_rows", np.concatenate(send), np.int32)
    put("send_ptr", np.cumsum([0, *(len(rows) for rows in send)]), np.int64)
    put("degree", degree[nodes], np.int64)
    put("halo_degree", degree[halo_nodes], np.int64)
    del degree, halo_nodes
    files |= _write_edges(graph, labels, border, k, folder)
    files |= _write_features(graph.x, nodes, folder)
    put("y", graph.y[nodes], np.uint8 if graph.multilabel else np.int64)
    for name, mask in _masks(graph).items():
        put(f"{name}_mask", mask[nodes], bool)
    for name, of_node in (("node_type", graph.node_type), ("ids", graph.ids)):
        if of_node is not None:
            put(name, of_node[nodes], of_node.dtype)

    boundary = np.zeros(last - first, bool)
    for rows in send:
        boundary[rows] = True
    return PartInfo(
        last - first, len(border.halo), border.inner_edges, border.halo_edges, int(np.count_nonzero(boundary)), files
    )


def _write_edges(graph: Graph, labels: Relabelling, border: Border, k: int, folder: Path) -> dict[str, FileEntry]:
    """Write both CSRs of part k, columns ascending in each row, and edge attributes in the same order."""
    first, last = labels.ranges[k], labels.ranges[k + 1]
    attributes = graph.edge_attr
    files: dict[str, ArrayFile] = {}
    for side, edges in (("inner", border.inner_edges), ("halo", border.halo_edges)):
        files[f"{side}_indptr"] = ArrayFile(folder / f"{side}_indptr.npy", np.int64, (int(last - first) + 1,))
        files[f"{side}_indices"] = ArrayFile(folder / f"{side}_indices.npy", np.int32, (edges,))
        files[f"{side}_indptr"].append(np.zeros(1, np.int64))
        if attributes is not None:
            shape = (edges, *attributes.shape[1:])
            files[f"{side}_edge_attr"] = ArrayFile(folder / f"{side}_edge_attr.npy", attributes.dtype, shape)
    place = np.zeros(graph.num_nodes, np.int32)  # position of a halo node in the halo list
    place[border.halo] = np.arange(len(border.halo), dtype=np.int32)
    done = {"inner": 0, "halo": 0}
    for count, rows, columns, positions in _rows_of(graph, labels, k):
        keys = pack(columns, rows)
        if attributes is None:
            keys.sort()
        else:
            order = np.argsort(keys)
            keys, positions = keys[order], positions[order]
        rows, columns = targets(keys), sources(keys)
        inside = (columns >= first) & (columns < last)
        for side, chosen in (("inner", inside), ("halo", ~inside)):
            local = columns[chosen]
            ends = done[side] + np.cumsum(np.bincount(rows[chosen], minlength=count))
            done[side] = int(ends[-1])
            files[f"{side}_indptr"].append(ends)
            files[f"{side}_indices"].append(local - np.int32(first) if side == "inner" else place[local])
            if attributes is not None:
                files[f"{side}_edge_attr"].append(attributes[positions[chosen]])
    return {f"{name}.npy": file.close() for name, file in files.items()}


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
