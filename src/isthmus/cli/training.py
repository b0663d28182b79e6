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
    load_graph,
    report_progress,
    show,
)
from isthmus.errors import InputError


@app.command()
def train(
    source: Source,
    recipe: Annotated[str, typer.Option(help="How rows are exchanged; `isthmus recipes` lists them.")] = "exact",
    workers: Annotated[
        int | None,
        typer.Option(help="Default: one per part, 2 for a graph not yet cut; fewer take several parts each."),
    ] = None,
    model: Annotated[str, typer.Option(help="gcn, sage or gat.")] = "gcn",
    layers: Annotated[int, typer.Option(help="Convolutions.")] = 2,
    hidden: Annotated[int, typer.Option(help="Width between them.")] = 64,
    heads: Annotated[int, typer.Option(help="Attention heads (gat).")] = 4,
    dropout: Annotated[float, typer.Option(help="Between convolutions.")] = 0.5,
    input_dropout: Annotated[float, typer.Option(help="Of the features; 0 lets layer 0 aggregate once.")] = 0.0,
    layer_norm: Annotated[bool, typer.Option("--layer-norm", help="Normalise rows between convolutions.")] = False,
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 0.01,
    weight_decay: Annotated[float, typer.Option(help="L2 penalty.")] = 0.0,
    optimizer: Annotated[str, typer.Option(help="adam, adamw or sgd.")] = "adam",
    steps: Annotated[int, typer.Option(help="Weight updates.")] = 200,
    eval_every: Annotated[int, typer.Option(help="Steps between evaluations.")] = 10,
    patience: Annotated[int, typer.Option(help="Evaluations without progress before stopping; 0: never.")] = 0,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between checkpoints; 0: at evaluations.")] = 0,
    probe_every: Annotated[int, typer.Option(help="Steps between measurements of stale rows' error; 0: never.")] = 0,
    split: Annotated[int, typer.Option(help="Which of the graph's splits.")] = 0,
    features: Annotated[str, typer.Option(help="raw, rows (each row divided by its sum) or standard.")] = "raw",
    inductive: Annotated[bool, typer.Option("--inductive", help="Train on the training nodes' graph only.")] = False,
    metric: Annotated[str | None, typer.Option(help="accuracy, micro-f1 or roc-auc.")] = None,
    seed: Seed = 0,
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    rows_dtype: Annotated[str | None, typer.Option(help="bf16: read and send rows in bf16.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="A recipe's own option, name=value.")] = None,
    method: Annotated[str | None, typer.Option(help="Of cutting: metis, ldg, random or blocks.")] = None,
    undirected: Undirected = False,
    directed: Directed = False,
    threads: Threads = None,
    timeout: Timeout = 300.0,
    launcher: Annotated[str, typer.Option(help="auto (torchrun, srun, Kubernetes, or this machine), ray.")] = "auto",
    restarts: Annotated[int, typer.Option(help="Times a run that lost a worker starts again without progress.")] = 3,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="The run folder; default: the next of runs/1, runs/2, …")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write event files into RUN/tensorboard; needs that extra.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Json = False,
) -> None:
    """Train a model on a graph with several workers.

    Example: isthmus train synthetic:flickr@0.1 --workers 3 --model sage

    Under torchrun, srun or Kubernetes the same command joins the ranks it is given; --launcher ray asks a Ray cluster.
    """
    from isthmus import recipes
    from isthmus.engine import TrainConfig
    from isthmus.launch.job import Job
    from isthmus.launch.start import launch
    from isthmus.nn import ModelConfig
    from isthmus.partition import is_parts_folder
    from isthmus.recipes.given import given

    shape = ModelConfig(model, layers, hidden, heads, dropout, input_dropout, layer_norm)
    chosen = recipes.find(recipe)
    config = TrainConfig(
        model=shape,
        recipe=recipe,
        options=chosen.settings(given(settings or [])),
        optimizer=optimizer,
        lr=lr,
        weight_decay=weight_decay,
        steps=steps,
        eval_every=eval_every,
        patience=patience,
        checkpoint_every=checkpoint_every,
        split=split,
        seed=seed,
        dtype=dtype,
        rows_dtype=rows_dtype,
        features=features,
        inductive=inductive,
        probe_every=probe_every,
        metric=metric,
    )
    chosen.policy(config.options)  # refused before any work is done

    def cut(folder: Path, parts: int) -> None:
        from isthmus.partition import partition as write_parts

        report = None if quiet else report_progress
        graph = load_graph(source, undirected, directed, report)
        objective = None if method else chosen.objective
        write_parts(graph, parts, method or chosen.method, out=folder, seed=seed, objective=objective, progress=report)

    if (method or undirected or directed) and is_parts_folder(source):
        raise InputError(f"{source} is already cut: give --method, --undirected and --directed to `isthmus partition`")
    run = None if out_folder is None else str(out_folder)
    job = Job("train", source, config, run, resume, threads, timeout, quiet, restarts=restarts, tensorboard=tensorboard)
    summary = launch(job, source, workers, cut, launcher)
    if summary:
        show(summary, _summary_table(summary), as_json)


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="A parts folder.")],
    model: Annotated[str, typer.Option(help="gcn, sage or gat.")] = "gcn",
    layers: Annotated[int, typer.Option(help="Convolutions.")] = 2,
    hidden: Annotated[int, typer.Option(help="Width between them.")] = 16,
    dropout: Annotated[float, typer.Option(help="Between convolutions.")] = 0.5,
    steps: Annotated[int, typer.Option(help="Weight updates before comparing.")] = 5,
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float64",
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
    from isthmus.nn import ModelConfig

    config = TrainConfig(model=ModelConfig(model, layers, hidden, dropout=dropout), steps=steps, dtype=dtype, seed=seed)

    result = launch(Job("verify", str(folder), config, threads=threads, timeout=timeout), str(folder), workers)
    if not result:
        return
    table = Table(title=f"{result['graph']}: {result['workers']} workers against one process, {result['steps']} steps")
    table.add_column("of")
    table.add_column("largest difference", justify="right")
    for name, value in result["largest_difference"].items():
        table.add_row(name, f"{value:.3g}")
    show(result, table, as_json)
    verdict = "[green]equal[/]: none is" if result["equal"] else "[red]not equal[/]: some are"
    err.print(f"{verdict} above {result['limit']:g} (relative to values above one)", soft_wrap=True)
    if not result["equal"]:
        raise typer.Exit(1)


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="A run folder: its best weights by validation score are used.")],
    out_file: Annotated[
        Path, typer.Option("--out", help="X.npy (for several things X.class.npy, X.score.npy, …) or X.parquet.")
    ],
    what: Annotated[
        list[str] | None, typer.Option(help="class, score, scores, embedding: several by comma; default class,score.")
    ] = None,
    nodes: Annotated[
        Path | None, typer.Option(help="Only these, in this order: original ids, one per line or .npy.")
    ] = None,
    parts: Annotated[Path | None, typer.Option(help="The run's parts folder, if it was moved.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
    workers: Annotated[int | None, typer.Option(help="Default: as many as the run had.")] = None,
    threads: Threads = None,
    timeout: Timeout = 300.0,
    as_json: Json = False,
) -> None:
    """Write class, score or embedding of every node, in original ids.

    Example: isthmus predict runs/1 --out nodes.parquet

    Under torchrun or srun the same command joins the ranks it is given.
    """
    from isthmus.engine import PredictConfig
    from isthmus.launch.start import launch_prediction

    names = tuple(name.strip() for text in what or ["class,score"] for name in text.split(","))
    listed, moved = (None if path is None else str(path) for path in (nodes, parts))
    asked = PredictConfig(str(run), str(out_file), names, listed, overwrite)
    result = launch_prediction(asked, moved, workers, threads, timeout)
    if not result:
        return
    table = Table(title=f"{result['graph']}: predicted on {result['workers']} worker(s)", show_header=False)
    table.add_row("nodes", f"{result['rows']:,}")
    table.add_row("weights", f"of step {result['step']}, the best by validation score")
    for name in result["files"]:
        table.add_row("written", escape(name))
    show(result, table, as_json)


def _score(value: float | None) -> str:
    return "none: no such nodes" if value is None else f"{value:.4f}"


def _summary_table(summary: dict[str, Any]) -> Table:
    table = Table(title=f"{summary['graph']}: {summary['recipe']} on {summary['workers']} worker(s)", show_header=False)
    score, metric = summary["test"]["score"], summary["test"]["metric"]
    sent = summary["bytes_per_step"]
    seconds = summary["seconds"]
    judged = f"validation {_score(summary['best_val'])}, step {summary['best_step']}"
    table.add_row(f"test {metric}", f"{_score(score)} ({judged})")
    table.add_row("steps", f"{summary['steps']}, median {summary['step_seconds']['median'] * 1e3:.1f} ms")
    names = ("compute", "wait", "reduce", "eval", "total")
    table.add_row("seconds", ", ".join(f"{name} {seconds[name]:.1f}" for name in names))
    table.add_row("bytes per step", ", ".join(f"{kind} {size:,}" for kind, size in sent.items() if size) or "none")
    if summary["staleness"]["max"]:
        age = summary["staleness"]
        table.add_row("age of rows used", f"{age['mean']:.2f} steps, at most {age['max']}")
    if summary["hidden"] is not None:
        table.add_row("transfers hidden", f"{summary['hidden']:.0%} of their time nobody waited")
    table.add_row("memory, all workers", f"{summary['memory_peak_bytes'] / 2**20:,.0f} MiB")
    if summary["run"]:
        table.add_row("run", summary["run"])
    return table
