"""How good a partition is: what is cut, what must travel, how evenly the work is shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rich.console import RenderableType

    from isthmus.partition.book import Book, PartInfo


_LOADS = "part train val test disk receives sends"
_CAPTION = "nodes of the first split; bytes to exchange one fp32 column"


def quality(parts: Sequence[PartInfo], sent: np.ndarray, splits: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The figures stored in book.json, from rows sent by each part [P] and its nodes in train, val, test [P, S].

    - cut_edges: edges j → i whose ends lie in different parts; cut_share: of all edges
    - volume: Σ_v |parts other than v's that read v|, the rows that cross links in one exchange; = all halo rows
    - halo_per_inner: per part, "ratio of boundary to inner" in BNS-GCN table 1, whose boundary nodes are our halo nodes
    - boundary_share: per part, the share of inner nodes that others read
    - balance: max/mean over parts of nodes, edges, train, val, test (of several splits, the worst)
    - bytes: per part, on disk; receive_bytes_per_column, send_bytes_per_column: in one exchange of one fp32 column
    """
    inner, halo = np.array([p.inner for p in parts]), np.array([p.halo for p in parts])
    cut = np.array([p.halo_edges for p in parts])
    edges = cut + np.array([p.inner_edges for p in parts])
    return {
        "cut_edges": int(cut.sum()),
        "cut_share": float(cut.sum() / max(1, edges.sum())),
        "volume": int(halo.sum()),
        "halo_per_inner": (halo / inner).tolist(),
        "boundary_share": [p.boundary / p.inner for p in parts],
        "balance": {
            "nodes": _imbalance(inner),
            "edges": _imbalance(edges),
            **{name: max(_imbalance(column) for column in counts.T) for name, counts in splits.items()},
        },
        "splits": {name: counts.tolist() for name, counts in splits.items()},
        "bytes": [p.bytes for p in parts],
        "receive_bytes_per_column": (4 * halo).tolist(),
        "send_bytes_per_column": (4 * sent).tolist(),
    }


def _imbalance(load: np.ndarray) -> float:
    """max/mean; 1 is perfect. A load that nobody has is balanced."""
    return float(load.max() / load.mean()) if load.any() else 1.0


def as_dict(book: Book) -> dict[str, Any]:
    """What `isthmus inspect --json` prints: the book without the list of files."""
    content = book.as_dict()
    for part in content["parts"]:
        del part["files"]
    return content


def describe(book: Book) -> RenderableType:
    """The book as `isthmus inspect` prints it: totals, then the shape and the load of every part."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    q = book.quality
    balance = ", ".join(f"{name} {value:.2f}" for name, value in q["balance"].items())
    head = Text(
        f"{book.name}: {book.nodes:,} nodes, {book.edges:,} edges, {book.features:,} features, {book.classes} classes, "
        f"{book.splits} split{'s' * (book.splits != 1)}\n"
        f"{book.num_parts} part{'s' * (book.num_parts != 1)} by {book.method}: "
        f"{q['cut_edges']:,} edges cut ({q['cut_share']:.1%}), {q['volume']:,} rows cross links in one exchange "
        f"({q['volume'] / book.nodes:.2f} per node)\n"
        f"balance (max/mean): {balance}"
    )
    shape = Table(box=None, pad_edge=False)
    load = Table(box=None, pad_edge=False)
    for table, titles in ((shape, "part inner halo halo/inner boundary edges cut"), (load, _LOADS)):
        for title in titles.split():
            table.add_column(title, justify="right")
    for k, part in enumerate(book.parts):
        edges = part.inner_edges + part.halo_edges
        shares = f"{q['halo_per_inner'][k]:.2f}", f"{q['boundary_share'][k]:.1%}"
        cut = f"{part.halo_edges / max(1, edges):.1%}"
        shape.add_row(str(k), f"{part.inner:,}", f"{part.halo:,}", *shares, f"{edges:,}", cut)
        counts = (f"{q['splits'][name][k][0]:,}" for name in ("train", "val", "test"))
        sizes = (size_text(q[name][k]) for name in ("bytes", "receive_bytes_per_column", "send_bytes_per_column"))
        load.add_row(str(k), *counts, *sizes)
    return Group(head, "", shape, "", load, Text(_CAPTION, "dim italic"))


def size_text(count: float) -> str:
    """Bytes: 936 B, 17.4 KiB, 2.1 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
