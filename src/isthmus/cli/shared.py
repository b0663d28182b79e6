"""Things that several commands share: the app, the consoles, common options, and the output of results."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console

from isthmus.cli.help import REST, Commands, group
from isthmus.console import err as err
from isthmus.launch.place import detect

app = Commands(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Train graph neural networks across machines, over narrow links.\n\n"
    "Example: isthmus train synthetic:flickr@0.1 --workers 3 --model sage",
)
out = Console()
of_workers, of_run, of_the_rest = group("Workers"), group("Run"), group(REST)

Json = Annotated[bool, of_the_rest("--json", help="Print the result as one line of json, last on stdout.")]
Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE", help="Parts folder, .npz, folder of tables, pyg:NAME, ogb:NAME, synthetic:NAME@SCALE."
    ),
]


def typed(ctx: typer.Context) -> dict[str, Any]:
    """Return the options that the user gave, without those left at their defaults."""
    own = {"source", "as_json"}
    return {name: value for name, value in ctx.params.items() if _is_given(ctx, name) and name not in own}


def _is_given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def speaks() -> bool:
    """Return whether this process prints the result of a job: of joined workers only the first does."""
    place = detect()
    return place is None or place.rank == 0


def show(result: dict[str, Any], table: Any, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result), flush=True)
    else:
        out.print(table)
