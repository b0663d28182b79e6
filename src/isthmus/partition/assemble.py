"""Put the parts of a graph together again, for comparisons with a single process."""

from __future__ import annotations

import numpy as np

from isthmus.errors import InputError
from isthmus.graph.graph import Graph, SparseRows
from isthmus.partition.book import Book


def assemble(book: Book) -> Graph:
    """Return the whole graph of a parts folder, in original ids; needs the memory that parts are meant to avoid."""
    parts = [book.part(k) for k in range(book.num_parts)]
    nodes = np.concatenate([part.nodes for part in parts])
    place = np.full_like(nodes, -1)  # global id of each original id
    place[nodes] = np.arange(len(nodes))
    if (place < 0).any():
        raise InputError(f"{book.folder}: node {int(place.argmin())} is in no part: write the parts again")
    sources, targets, attributes = [], [], []
    for part in parts:
        every = np.concatenate([part.nodes, part.halo_nodes])
        ends = {"inner": (part.nodes, part.nodes), "halo": (part.halo_nodes, part.nodes)}
        if part.mirror_indptr is not None:
            ends["mirror"] = every, part.halo_nodes
        for kind, (begins, names) in ends.items():
            indptr, indices = getattr(part, f"{kind}_indptr"), getattr(part, f"{kind}_indices")
            sources.append(begins[indices])
            targets.append(np.repeat(names, np.diff(indptr)))
            attributes.append(getattr(part, f"{kind}_edge_attr"))
    source, target = np.concatenate(sources), np.concatenate(targets)
    order = np.lexsort((source, target))
    x: np.ndarray | SparseRows
    if isinstance(parts[0].x, SparseRows):
        x = SparseRows.stack([part.x for part in parts]).take(place)  # type: ignore[misc]
    else:
        x = np.concatenate([part.x for part in parts])[place]  # type: ignore[misc]

    def whole(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts])[place]

    return Graph(
        indptr=np.concatenate([[0], np.cumsum(np.bincount(target, minlength=len(nodes)))]).astype(np.int64),
        indices=source[order].astype(np.int32),
        x=x,
        y=whole("y"),
        train_mask=whole("train_mask"),
        val_mask=whole("val_mask"),
        test_mask=whole("test_mask"),
        num_classes=book.classes,
        name=book.name,
        symmetric=book.symmetric,
        edge_attr=None if attributes[0] is None else np.concatenate(attributes)[order],
        node_type=None if parts[0].node_type is None else whole("node_type"),
        ids=whole("ids") if book.has_ids else None,
    )
