"""Describe a parts folder in words and tables, for `isthmus inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isthmus.partition.book import Book
from isthmus.units import size_text

if TYPE_CHECKING:
    from rich.console import RenderableType

_LOADS = "part train val test disk receives sends"
_CAPTION = "nodes of the first split; bytes to exchange one fp32 column"


def as_dict(book: Book) -> dict[str, Any]:
    """Return the content of the book without the list of files, for `isthmus inspect --json`."""
    content = book.as_dict()
    for part in content["parts"]:
        del part["files"]
    return content


def describe(book: Book) -> RenderableType:
    """Return what `isthmus inspect` prints of a book: totals, then the shape and the load of every part."""
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
