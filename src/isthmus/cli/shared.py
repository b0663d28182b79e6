"""Things that several commands share: the app, the consoles, common options, and the output of results."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
of_recipe, of_model, of_learning = group("Recipe"), group("Model"), group("Learning")
of_cutting, of_workers, of_run = group("Cutting"), group("Workers"), group("Run")
of_the_rest = group(REST)

Json = Annotated[bool, of_the_rest("--json", help="Print the result as one line of json, last on stdout.")]
Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE", help="Parts folder, .npz, folder of tables, pyg:NAME, ogb:NAME, synthetic:NAME@SCALE."
    ),
]
Undirected = Annotated[bool, of_cutting("--undirected", help="Add the missing direction of every edge.")]
Directed = Annotated[bool, of_cutting("--directed", help="Keep one-directional edges as they are.")]
Seed = Annotated[int, of_the_rest(help="For every random draw.")]
Method = Annotated[str, of_cutting(help="metis, ldg, random or blocks.")]
Workers = Annotated[int | None, of_workers(help="Default: one per part; fewer take several parts each.")]
Timeout = Annotated[float, of_workers(help="Seconds that a worker waits for another.")]
Threads = Annotated[int | None, of_workers(help="Per worker; default: an equal share of this machine's cores.")]


def typed(ctx: typer.Context, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the options that the user gave, without those left at their defaults; ``names`` renames some."""
    own = {"source", "as_json"}
    given = {name: value for name, value in ctx.params.items() if _is_given(ctx, name) and name not in own}
    return {names.get(name, name): value for name, value in given.items()}


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
