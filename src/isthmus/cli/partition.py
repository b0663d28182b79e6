"""Commands about graphs and parts: partition, inspect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group

from isthmus.cli.shared import Json, Source, app, of_the_rest, show


@app.command(takes="partition")
def partition(
    source: Source,
    parts: Annotated[int, typer.Option(help="How many.")],
    out_folder: Annotated[Path, typer.Option("--out", help="The parts folder to write.")],
    quiet: Annotated[bool, of_the_rest("--quiet", help="No progress.")] = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Cut a graph into parts, one for each worker.

    Example: isthmus partition graph.npz --parts 4 --out parts
    """
    from isthmus.partition import describe, partition_source

    book = partition_source(source, parts, out_folder, quiet=quiet, **options)
    show(dict(book.quality), describe(book), as_json)


@app.command()
def inspect(
    folder: Annotated[Path, typer.Argument(help="A parts folder.")],
    checksums: Annotated[bool, typer.Option("--checksums", help="Read every file and compare its sha256.")] = False,
    hosts: Annotated[
        int | None, typer.Option(help="Count rows within and between so many hosts; default: those it was cut for.")
    ] = None,
    fanout: Annotated[
        str | None, typer.Option(help="Expect the rows pulled for mini-batches with these fanouts, as 15,10,5.")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="With --fanout: seed nodes of a step, over all workers.")] = 1000,
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
    told, table = {**book.quality, **(sent or {})}, describe(book, sent)
    if fanout is not None:
        from isthmus.engine import TrainConfig
        from isthmus.minibatch.forecast import expected_rows

        asked = TrainConfig(fanout=fanout, batch_size=batch_size)
        rows = [round(count) for count in expected_rows(book, batch_size, asked.fanouts)]
        told["rows_per_batch"] = rows
        words = ", ".join(f"{count:,}" for count in rows)
        table = Group(table, f"rows of other parts that a batch of {batch_size:,} reads, by part: {words}")
    show(told, table, as_json)
