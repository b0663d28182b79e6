"""Commands about graphs and parts: partition, inspect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.shared import Directed, Json, Method, Seed, Source, Undirected, app, show


@app.command()
def partition(
    source: Source,
    parts: Annotated[int, typer.Option(help="How many.")],
    out_folder: Annotated[Path, typer.Option("--out", help="The parts folder to write.")],
    cut: Annotated[str, typer.Option(help="Where edges live: edge or cover.")] = "edge",
    method: Method = "metis",
    objective: Annotated[str | None, typer.Option(help="What metis minimises: cut or vol.")] = None,
    balance: Annotated[str | None, typer.Option(help="What metis balances, e.g. nodes,edges,train,val,test.")] = None,
    order: Annotated[str | None, typer.Option(help="Order of nodes inside a part: metis, ldg or given.")] = None,
    block_nodes: Annotated[int, typer.Option(help="Nodes per locality block of a part.")] = 4000,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing parts folder.")] = False,
    undirected: Undirected = False,
    directed: Directed = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Cut a graph into parts, one for each worker.

    Example: isthmus partition graph.npz --parts 4 --out parts
    """
    from isthmus.partition import describe, partition_source

    book = partition_source(
        source,
        parts,
        out_folder,
        cut=cut,
        method=method,
        objective=objective,
        balance=balance,
        order=order,
        block_nodes=block_nodes,
        overwrite=overwrite,
        undirected=undirected,
        directed=directed,
        seed=seed,
    )
    show(dict(book.quality), describe(book), as_json)


@app.command()
def inspect(
    folder: Annotated[Path, typer.Argument(help="A parts folder.")],
    checksums: Annotated[bool, typer.Option("--checksums", help="Read every file and compare its sha256.")] = False,
    as_json: Json = False,
) -> None:
    """Show the quality of a partition: cut, halo, balance, bytes.

    Example: isthmus inspect parts
    """
    from isthmus.partition import Book, describe

    book = Book.read(folder)
    if checksums:
        book.verify_checksums()
    show(dict(book.quality), describe(book), as_json)
