"""What the commands share: the app, the consoles, options that many take, and how results are shown."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console

from isthmus.console import err as err
from isthmus.launch.place import detect

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Train graph neural networks across machines, over narrow links.",
)
out = Console()

Json = Annotated[bool, typer.Option("--json", help="Print the result as one line of json, last on stdout.")]
Source = Annotated[
    str, typer.Argument(help="Parts folder, .npz, folder of tables, pyg:NAME, ogb:NAME or synthetic:NAME@SCALE.")
]
Undirected = Annotated[bool, typer.Option("--undirected", help="Add the missing direction of every edge.")]
Directed = Annotated[bool, typer.Option("--directed", help="Keep one-directional edges as they are.")]
Seed = Annotated[int, typer.Option(help="Of every random draw.")]
Method = Annotated[str, typer.Option(help="metis, ldg, random or blocks.")]
Workers = Annotated[int | None, typer.Option(help="Default: one per part; fewer take several parts each.")]
Timeout = Annotated[float, typer.Option(help="Seconds that a worker waits for another before it gives up.")]
Threads = Annotated[int | None, typer.Option(help="Per worker; default: this machine's cores shared out.")]


def speaks() -> bool:
    """Whether this process tells what came of a job: of joined workers only the first does."""
    place = detect()
    return place is None or place.rank == 0


def show(result: dict[str, Any], table: Any, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result), flush=True)
    else:
        out.print(table)
