"""Commands that run workers: train, verify, predict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from isthmus.cli.shared import Json, Source, app, err, of_run, of_workers, show, speaks, typed


@app.command(takes="train")
def train(ctx: typer.Context, source: Source, as_json: Json = False, **options: Any) -> None:
    """Train a model on a graph with several workers.

    Example: isthmus train synthetic:flickr@0.1 --workers 3 --model sage

    Under torchrun, srun or Kubernetes the same command joins the ranks it is given; --launcher ray asks a Ray cluster.
    """
    from isthmus.api import train as run

    result = run(source, **typed(ctx))
    if speaks():
        table = Table(title=result.title, show_header=False)
        for row in result.rows():
            table.add_row(*map(escape, row))
        show(result.summary, table, as_json)


@app.command(takes="verify")
def verify(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(help="A parts folder.")],
    as_json: Json = False,
    **options: Any,
) -> None:
    """Train the parts and the whole graph side by side and print the largest difference.

    Example: isthmus verify parts --model sage
    """
    from isthmus import recipes
    from isthmus.api.options import config_of, values_of
    from isthmus.launch.job import Job
    from isthmus.launch.start import launch
    from isthmus.nn import MODELS, ModelConfig

    if options["model"] not in MODELS and "hidden" not in typed(ctx):
        options["hidden"] = ModelConfig.hidden  # a user's model need not have such an option
    job = Job("verify", str(folder), config_of(options, recipes.find(options["recipe"])), **values_of(Job, options))
    result = launch(job, str(folder), options["workers"])
    if not speaks():
        return
    table = Table(title=f"{result['graph']}: {result['workers']} workers against one process, {result['steps']} steps")
    table.add_column("of")
    table.add_column("largest difference", justify="right")
    for name, value in result["largest_difference"].items():
        table.add_row(name, f"{value:.3g}")
    show(result, table, as_json)
    verdict = "[green]equal[/]: none is" if result["equal"] else "[red]not equal[/]: some are"
    err.print(f"{verdict} above {result['limit']:g} (relative to values above one)", soft_wrap=True)
    if not result["equal"] and result["drawn_by"] is not None:
        by = ", ".join(result["drawn_by"]) or "torch.rand or the like"
        why = f"the model drew its own random numbers ({by}), different ones on each worker: that alone makes it differ"
        remedy = "take torch.nn.functional.dropout or graph.dropout(x, p), which draw by node here"
        err.print(f"{escape(why)}; {escape(remedy)}", soft_wrap=True, highlight=False)
    if not result["equal"]:
        raise typer.Exit(1)


@app.command(takes="predict")
def predict(
    ctx: typer.Context,
    run: Annotated[Path, typer.Argument(help="A run folder: its best weights by validation score are used.")],
    out_file: Annotated[
        Path, typer.Option("--out", help="X.npy (for several things X.class.npy, X.score.npy, …), X.csv or X.parquet.")
    ],
    parts: Annotated[Path | None, of_run(help="The run's parts folder, if it was moved.")] = None,
    workers: Annotated[int | None, of_workers(help="Default: as many as the run had.")] = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Write class, score or embedding of every node, in original ids.

    Example: isthmus predict runs/1 --out nodes.csv

    Under torchrun or srun the same command joins the ranks it is given.
    """
    from isthmus.api import predict as write

    own = ("run", "out_file")
    result = write(run, out_file, **{name: value for name, value in typed(ctx).items() if name not in own})
    if not speaks():
        return
    table = Table(title=f"{result['graph']}: predicted on {result['workers']} worker(s)", show_header=False)
    table.add_row("nodes", f"{result['rows']:,}")
    table.add_row("weights", f"of step {result['step']}, the best by validation score")
    for name in result["files"]:
        table.add_row("written", escape(name))
    show(result, table, as_json)
