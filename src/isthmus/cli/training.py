"""Commands that run workers: train, verify, predict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from isthmus.cli.shared import (
    Directed,
    Json,
    Seed,
    Source,
    Threads,
    Timeout,
    Undirected,
    Workers,
    app,
    err,
    of_cutting,
    of_learning,
    of_model,
    of_recipe,
    of_run,
    of_workers,
    show,
    speaks,
    typed,
)


@app.command()
def train(
    ctx: typer.Context,
    source: Source,
    recipe: Annotated[str, of_recipe(help="How rows are exchanged; `isthmus recipes` lists them.")] = "exact",
    workers: Annotated[
        int | None,
        of_workers(help="Default: one per part (2 if not yet cut); fewer take several each."),
    ] = None,
    model: Annotated[str, of_model(help="gcn, sage, gat, or your own as package.module:Net.")] = "gcn",
    layers: Annotated[int, of_model(help="Convolutions.")] = 2,
    hidden: Annotated[int, of_model(help="Width between them.")] = 64,
    heads: Annotated[int, of_model(help="Attention heads (gat).")] = 4,
    dropout: Annotated[float, of_model(help="Between convolutions.")] = 0.5,
    input_dropout: Annotated[float, of_model(help="On the features; 0 lets layer 0 aggregate once.")] = 0.0,
    layer_norm: Annotated[bool, of_model("--layer-norm", help="Normalise rows between convolutions.")] = False,
    lr: Annotated[float, of_learning(help="Learning rate.")] = 0.01,
    weight_decay: Annotated[float, of_learning(help="L2 penalty.")] = 0.0,
    optimizer: Annotated[str, of_learning(help="adam, adamw or sgd.")] = "adam",
    steps: Annotated[int, of_learning(help="Weight updates.")] = 200,
    eval_every: Annotated[int, of_learning(help="Steps between evaluations.")] = 10,
    patience: Annotated[int, of_learning(help="Evaluations without progress before stopping; 0: never.")] = 0,
    checkpoint_every: Annotated[int, of_run(help="Steps between checkpoints; 0: at evaluations.")] = 0,
    probe_every: Annotated[int, of_recipe(help="Steps between measurements of stale rows' error; 0: never.")] = 0,
    split: Annotated[int, of_learning(help="Which of the graph's splits.")] = 0,
    features: Annotated[str, of_learning(help="raw, rows (each row divided by its sum) or standard.")] = "raw",
    inductive: Annotated[bool, of_learning("--inductive", help="Train on the training nodes' graph only.")] = False,
    metric: Annotated[str | None, of_learning(help="accuracy, micro-f1 or roc-auc.")] = None,
    seed: Seed = 0,
    dtype: Annotated[str, of_learning(help="float32 or float64.")] = "float32",
    rows_dtype: Annotated[str | None, of_learning(help="bf16: read and send rows in bf16.")] = None,
    settings: Annotated[list[str] | None, of_recipe("--set", help="A recipe's own option, name=value.")] = None,
    method: Annotated[str | None, of_cutting(help="How to cut: metis, ldg, random or blocks.")] = None,
    undirected: Undirected = False,
    directed: Directed = False,
    threads: Threads = None,
    timeout: Timeout = 300.0,
    launcher: Annotated[str, of_workers(help="auto (torchrun, srun, Kubernetes, or this machine), ray.")] = "auto",
    restarts: Annotated[int, of_workers(help="Restarts of a run that lost a worker, without progress between.")] = 3,
    out_folder: Annotated[
        Path | None, of_run("--out", help="The run folder; default: the next of runs/1, runs/2, …")
    ] = None,
    resume: Annotated[bool, of_run("--resume", help="Resume the run SOURCE, or the one in --out.")] = False,
    tensorboard: Annotated[
        bool, of_run("--tensorboard", help="Write event files to RUN/tensorboard (an extra).")
    ] = False,
    track: Annotated[str | None, of_run(help="Also report to wandb or mlflow (extras); wandb,mlflow: to both.")] = None,
    quiet: Annotated[bool, of_run("--quiet", help="No progress.")] = False,
    as_json: Json = False,
) -> None:
    """Train a model on a graph with several workers.

    Example: isthmus train synthetic:flickr@0.1 --workers 3 --model sage

    Under torchrun, srun or Kubernetes the same command joins the ranks it is given; --launcher ray asks a Ray cluster.
    """
    from isthmus.api import train as run

    result = run(source, **typed(ctx, {"out_folder": "out", "settings": "set"}))
    if speaks():
        table = Table(title=result.title, show_header=False)
        for row in result.rows():
            table.add_row(*map(escape, row))
        show(result.summary, table, as_json)


@app.command()
def verify(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(help="A parts folder.")],
    model: Annotated[str, of_model(help="gcn, sage, gat, or your own as package.module:Net.")] = "gcn",
    layers: Annotated[int, of_model(help="Convolutions.")] = 2,
    hidden: Annotated[int, of_model(help="Width between them.")] = 16,
    dropout: Annotated[float, of_model(help="Between convolutions.")] = 0.5,
    steps: Annotated[int, of_learning(help="Weight updates before comparing.")] = 5,
    dtype: Annotated[str, of_learning(help="float32 or float64.")] = "float64",
    seed: Seed = 0,
    workers: Workers = None,
    threads: Threads = None,
    timeout: Timeout = 300.0,
    as_json: Json = False,
) -> None:
    """Train the parts and the whole graph side by side and print the largest difference.

    Example: isthmus verify parts --model sage
    """
    from isthmus.engine import TrainConfig
    from isthmus.launch.job import Job
    from isthmus.launch.start import launch
    from isthmus.nn import MODELS, ModelConfig

    if model not in MODELS and "hidden" not in typed(ctx, {}):
        hidden = ModelConfig.hidden  # a user's model need not have such an option
    config = TrainConfig(model=ModelConfig(model, layers, hidden, dropout=dropout), steps=steps, dtype=dtype, seed=seed)

    result = launch(Job("verify", str(folder), config, threads=threads, timeout=timeout), str(folder), workers)
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


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="A run folder: its best weights by validation score are used.")],
    out_file: Annotated[
        Path, typer.Option("--out", help="X.npy (for several things X.class.npy, X.score.npy, …), X.csv or X.parquet.")
    ],
    what: Annotated[
        list[str] | None, typer.Option(help="class, score, scores, embedding: several by comma; default class,score.")
    ] = None,
    nodes: Annotated[
        Path | None, typer.Option(help="Only these, in this order: original ids, one per line or .npy.")
    ] = None,
    parts: Annotated[Path | None, typer.Option(help="The run's parts folder, if it was moved.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
    model: Annotated[str | None, typer.Option(help="The run's own model, named again: package.module:Net.")] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Import the model that the run folder names.")] = False,
    workers: Annotated[int | None, of_workers(help="Default: as many as the run had.")] = None,
    threads: Threads = None,
    timeout: Timeout = 300.0,
    as_json: Json = False,
) -> None:
    """Write class, score or embedding of every node, in original ids.

    Example: isthmus predict runs/1 --out nodes.csv

    Under torchrun or srun the same command joins the ranks it is given.
    """
    from isthmus.api import predict as write

    names = ",".join(what or ["class,score"])
    places: dict[str, Any] = {"nodes": nodes, "parts": parts}
    places |= {"model": model, "trust": trust}
    by: dict[str, Any] = {"workers": workers, "threads": threads, "timeout": timeout}
    result = write(run, out_file, what=names, overwrite=overwrite, **places, **by)
    if not speaks():
        return
    table = Table(title=f"{result['graph']}: predicted on {result['workers']} worker(s)", show_header=False)
    table.add_row("nodes", f"{result['rows']:,}")
    table.add_row("weights", f"of step {result['step']}, the best by validation score")
    for name in result["files"]:
        table.add_row("written", escape(name))
    show(result, table, as_json)
