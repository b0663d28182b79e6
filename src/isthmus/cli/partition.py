"""Commands about graphs and parts: partition, inspect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from isthmus.cli.shared import Json, Source, app, show


@app.command(takes="partition")
def partition(
    source: Source,
    parts: Annotated[int, typer.Option(help="How many.")],
    out_folder: Annotated[Path, typer.Option("--out", help="The parts folder to write.")],
    as_json: Json = False,
    **options: Any,
) -> None:
    """Cut a graph into parts, one for each worker.

    Example: isthmus partition graph.npz --parts 4 --out parts
    """
    from isthmus.partition import describe, partition_source

    book = partition_source(source, parts, out_folder, **options)
    show(dict(book.quality), describe(book), as_json)


@app.command()
def inspect(
    folder: Annotated[Path, typer.Argument(help="A parts folder.")],
    checksums: Annotated[bool, typer.Option("--checksums", help="Read every file and compare its sha256.")] = False,
    hosts: Annotated[
        int | None, typer.Option(help="Count rows within and between so many hosts; default: those it was cut for.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the quality of a partition: cut, halo, rows of each leg, balance, bytes.

    Example: isthmus inspect parts --hosts 2
    """
    from isthmus.partition import Book, describe
    from isthmus.partition.links import messages

    book = Book.read(folder)
    if checksums:
        book.verify_checksums()
    cut_for = book.options.get("hosts", 1)
    if hosts is None and isinstance(cut_for, int) and cut_for > 1:
        hosts = cut_for
    sent = None if hosts is None else messages(book, hosts)
    show({**book.quality, **(sent or {})}, describe(book, sent), as_json)
