"""Describe a parts folder in words and tables, for `isthmus inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isthmus.partition.book import Book
from isthmus.partition.quality import Messages
from isthmus.units import size_text

if TYPE_CHECKING:
    from rich.console import RenderableType

_LOADS = "part train val test disk receives sends"
_CUTS = {"cover": " with covers", "vertex": ", a vertex-cut"}
_CAPTION = "nodes of the first split; bytes to exchange one fp32 column"


def as_dict(book: Book) -> dict[str, Any]:
    """Return the content of the book without the list of files, for `isthmus inspect --json`."""
    content = book.as_dict()
    for part in content["parts"]:
        del part["files"]
    return content


def describe(book: Book, sent: Messages | None = None) -> RenderableType:
    """Return what `isthmus inspect` prints of a book: totals, then the shape and the load of every part.

    With ``sent``, what parts send within hosts and between them follows.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    q = book.quality
    balance = ", ".join(f"{name} {value:.2f}" for name, value in q["balance"].items())
    head = Text(
        f"{book.name}: {book.nodes:,} nodes, {book.edges:,} edges, {book.features:,} features, {book.classes} classes, "
        f"{book.splits} split{'s' * (book.splits != 1)}\n"
        f"{book.num_parts} part{'s' * (book.num_parts != 1)} by {book.method}{_CUTS.get(book.cut, '')}: "
        f"{q['cut_edges']:,} edges cut ({q['cut_share']:.1%}), {q['volume']:,} rows cross links in one exchange "
        f"({q['volume'] / book.nodes:.2f} per node){_legs(book)}\n"
        f"balance (max/mean): {balance}"
    )
    shape = Table(box=None, pad_edge=False)
    load = Table(box=None, pad_edge=False)
    for table, titles in ((shape, "part inner halo halo/inner boundary edges cut"), (load, _LOADS)):
        for title in titles.split():
            table.add_column(title, justify="right")
    for k, part in enumerate(book.parts):
        shares = f"{q['halo_per_inner'][k]:.2f}", f"{q['boundary_share'][k]:.1%}"
        cut = f"{(part.edges - part.inner_edges) / max(1, part.edges):.1%}"
        shape.add_row(str(k), f"{part.inner:,}", f"{part.halo:,}", *shares, f"{part.edges:,}", cut)
        counts = (f"{q['splits'][name][k][0]:,}" for name in ("train", "val", "test"))
        sizes = (size_text(q[name][k]) for name in ("bytes", "receive_bytes_per_column", "send_bytes_per_column"))
        load.add_row(str(k), *counts, *sizes)
    last = () if sent is None else ("", _messages(sent))
    return Group(head, "", shape, "", load, Text(_CAPTION, "dim italic"), "", _by_leg(book), *last)


def _legs(book: Book) -> str:
    """Return how the rows of an exchange are shared by its legs, for cuts that have two; and the replication factor."""
    q = book.quality
    if "gather_rows" not in q:
        return ""
    legs = f": {sum(q['scatter_rows']):,} scattered, {sum(q['gather_rows']):,} gathered" if book.cut != "edge" else ""
    return f"{legs}; replication factor {q['replication']:.2f}"


def _by_leg(book: Book) -> RenderableType:
    """Return a table of what each leg costs every part: rows and bytes that it sends, and edges that it sums."""
    from rich.table import Table

    q = book.quality
    if "gather_edges" not in q:
        return "what each leg costs is not in these parts, which an earlier version wrote"
    table = Table(box=None, pad_edge=False, title="legs of the forward pass", title_justify="left")
    for title in ("part", "scatters rows", "bytes", "edges from rows", "gathers sums", "bytes", "edges into sums"):
        table.add_column(title, justify="right")
    for k in range(book.num_parts):
        cells = [str(k)]
        for rows, edges in ((q["scatter_rows"], q["scatter_edges"]), (q["gather_rows"], q["gather_edges"])):
            cells += [f"{rows[k]:,}", size_text(4 * rows[k]), f"{edges[k]:,}"]
        table.add_row(*cells)
    table.caption = "rows sent, bytes of one fp32 column, edges summed"
    return table


def _messages(sent: Messages) -> RenderableType:
    """Return tables of the rows within hosts and between them: part to part, and as they are sent, by leg."""
    from rich.console import Group
    from rich.table import Table

    hosts, parts = sent["hosts"], len(sent["inner_messages"])
    table = Table(box=None, pad_edge=False, title=f"rows from part to part, {hosts} host{'s' * (hosts != 1)}")
    for title in ("host", "part", "inner", "outer"):
        table.add_column(title, justify="right")
    rows = list(zip(sent["inner_messages"], sent["outer_messages"], strict=True))
    for k, (inner, outer) in enumerate(rows):
        table.add_row(str(k * hosts // parts), str(k), f"{inner:,}", f"{outer:,}")
    table.add_row("", "most", *(f"{max(column):,}" for column in zip(*rows, strict=True)), style="bold")
    once = Table(box=None, pad_edge=False, title="rows as they are sent: to each other host once")
    for title in ("host", *(f"{leg} {where}" for leg in sent["by_leg"] for where in ("inner", "outer"))):
        once.add_column(title, justify="right")
    columns = [of_leg[where] for of_leg in sent["by_leg"].values() for where in ("inner", "outer")]
    for k, counts in enumerate(zip(*columns, strict=True)):
        once.add_row(str(k), *(f"{count:,}" for count in counts))
    once.caption = f"{sent['outer_rows']:,} rows between hosts in one exchange"
    return Group(table, "", once)
