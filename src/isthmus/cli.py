"""The commands, thin: read options, call a room, print what came back."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import isthmus
from isthmus.errors import InputError, WorkerError
from isthmus.launch.leave import leave
from isthmus.launch.memory import use_huge_pages

if TYPE_CHECKING:
    from isthmus.graph import Graph
    from isthmus.recipes import Recipe

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Train graph neural networks across machines, over narrow links.",
)
out, err = Console(), Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print the result as one line of json, last on stdout.")]
Source = Annotated[
    str, typer.Argument(help="Parts folder, .npz, folder of tables, pyg:NAME, ogb:NAME or synthetic:NAME@SCALE.")
]
Undirected = Annotated[bool, typer.Option("--undirected", help="Add the missing direction of every edge.")]
Directed = Annotated[bool, typer.Option("--directed", help="Keep one-directional edges as they are.")]
Seed = Annotated[int, typer.Option(help="Of every random draw.")]
Method = Annotated[str, typer.Option(help="metis, ldg, random or blocks.")]
Timeout = Annotated[float, typer.Option(help="Seconds that a worker waits for another before it gives up.")]
Threads = Annotated[int | None, typer.Option(help="Per worker; default: this machine's cores shared out.")]


def main() -> None:
    """The command line. Exit status: 0 well, 2 wrong input, 3 a worker failed, 130 interrupted."""
    use_huge_pages()
    try:
        app()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    except (InputError, WorkerError) as error:
        err.print(f"[red]error:[/] {escape(str(error))}", soft_wrap=True)
        status = 2 if isinstance(error, InputError) else 3
    except OSError as error:
        err.print(f"[red]error:[/] {escape(str(error))}: check that path, its permissions and the free space")
        status = 2
    if status == 130:
        err.print("interrupted; a training run goes on from its last checkpoint with --resume")
    if "RANK" in os.environ or "SLURM_PROCID" in os.environ:
        leave(status)
    sys.exit(status)


def _version(asked: bool) -> None:
    if asked:
        print(isthmus.__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    pass


@app.command()
def partition(
    source: Source,
    parts: Annotated[int, typer.Option(help="How many.")],
    out_folder: Annotated[Path, typer.Option("--out", help="The parts folder to write.")],
    method: Method = "metis",
    objective: Annotated[str | None, typer.Option(help="What metis makes small: cut or vol.")] = None,
    balance: Annotated[str | None, typer.Option(help="What metis balances, e.g. nodes,edges,train,val,test.")] = None,
    order: Annotated[str | None, typer.Option(help="Of nodes inside a part: metis, ldg or given.")] = None,
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
    from isthmus.partition import describe
    from isthmus.partition import partition as cut

    graph = _load(source, undirected, directed, _report)
    book = cut(
        graph,
        parts,
        method,
        out=out_folder,
        seed=seed,
        objective=objective,
        balance=None if balance is None else tuple(balance.split(",")),
        order=order,
        block_nodes=block_nodes,
        overwrite=overwrite,
        progress=_report,
    )
    _show(dict(book.quality), describe(book), as_json)


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
    _show(dict(book.quality), describe(book), as_json)


@app.command()
def train(
    source: Source,
    recipe: Annotated[str, typer.Option(help="How rows are exchanged; `isthmus recipes` lists them.")] = "exact",
    workers: Annotated[int | None, typer.Option(help="Default: one per part; 2 for a graph not yet cut.")] = None,
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
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="The run folder; default: the next of runs/1, runs/2, …")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Json = False,
) -> None:
    """Train a model on a graph with several workers.

    Example: isthmus train synthetic:flickr@0.1 --workers 3 --model sage

    Under torchrun or srun the same command joins the ranks it is given.
    """
    from isthmus import recipes
    from isthmus.engine import TrainConfig
    from isthmus.launch.job import Job
    from isthmus.launch.start import launch
    from isthmus.nn import ModelConfig
    from isthmus.partition import is_parts_folder

    shape = ModelConfig(model, layers, hidden, heads, dropout, input_dropout, layer_norm)
    chosen = recipes.find(recipe)
    config = TrainConfig(
        model=shape,
        recipe=recipe,
        options=chosen.settings(_settings(settings or [])),
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

        report = None if quiet else _report
        graph = _load(source, undirected, directed, report)
        objective = None if method else chosen.objective
        write_parts(graph, parts, method or chosen.method, out=folder, seed=seed, objective=objective, progress=report)

    if (method or undirected or directed) and is_parts_folder(source):
        raise InputError(f"{source} is already cut: give --method, --undirected and --directed to `isthmus partition`")
    run = None if out_folder is None else str(out_folder)
    job = Job("train", source, config, run, resume, threads, timeout, quiet)
    summary = launch(job, source, workers, cut)
    if summary:
        _show(summary, _summary_table(summary), as_json)


@app.command()
def recipes(
    name: Annotated[str | None, typer.Argument(help="One of them, to be explained.")] = None,
    as_json: Json = False,
) -> None:
    """List the recipes, or explain one: its paper, its options and their defaults.

    Example: isthmus recipes pipegcn
    """
    from isthmus.recipes import RECIPES, find
    from isthmus.recipes.common import CODED

    if name is None:
        table = Table(
            "recipe", "what is exchanged", "options", title="isthmus train SOURCE --recipe NAME --set option=value"
        )
        for recipe in RECIPES.values():
            table.add_row(
                recipe.name,
                escape(recipe.summary),
                ", ".join(option for option in recipe.options if option not in CODED),
            )
        _show({recipe.name: _recipe_facts(recipe) for recipe in RECIPES.values()}, table, as_json)
        if not as_json:
            out.print(f"Every recipe also takes {', '.join(CODED)}. More: isthmus recipes NAME", soft_wrap=True)
        return
    recipe = find(name)
    table = Table("option", "default", "meaning", title=f"{recipe.name}: {escape(recipe.summary)}")
    for option, about in recipe.options.items():
        table.add_row(option, str(about.default), escape(about.help))
    _show(_recipe_facts(recipe), table, as_json)
    if not as_json:
        cut = f"{recipe.method}, objective {recipe.objective}" if recipe.objective else recipe.method
        for line in (f"Paper: {recipe.paper}", f"Graphs not yet cut are cut by {cut}.", recipe.notes):
            out.print(escape(line), soft_wrap=True, highlight=False)


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

    result = launch(Job("verify", str(folder), config, threads=threads, timeout=timeout), str(folder), None)
    if not result:
        return
    table = Table(title=f"{result['graph']}: {result['workers']} workers against one process, {result['steps']} steps")
    table.add_column("of")
    table.add_column("largest difference", justify="right")
    for name, value in result["largest_difference"].items():
        table.add_row(name, f"{value:.3g}")
    _show(result, table, as_json)
    verdict = "[green]equal[/]: none is" if result["equal"] else "[red]not equal[/]: some are"
    err.print(f"{verdict} above {result['limit']:g} (relative to values above one)", soft_wrap=True)
    if not result["equal"]:
        raise typer.Exit(1)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    page: Annotated[
        Path | None, typer.Option("--out", help="Default: RUN/report.html; report.html here for several runs.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write one HTML page about one or several runs: curves, time, bytes, partition, options.

    Example: isthmus report runs/1 runs/2 --out report.html
    """
    from isthmus.report import overview, read_runs, write

    found = read_runs(runs)
    page = page or (runs[0] if len(found) == 1 else Path()) / "report.html"
    write(found, page)
    _show({"page": str(page), "runs": overview(found)}, f"wrote {escape(str(page))}", as_json)


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
    result = launch_prediction(asked, moved, threads, timeout)
    if not result:
        return
    table = Table(title=f"{result['graph']}: predicted on {result['workers']} worker(s)", show_header=False)
    table.add_row("nodes", f"{result['rows']:,}")
    table.add_row("weights", f"of step {result['step']}, the best by validation score")
    for name in result["files"]:
        table.add_row("written", escape(name))
    _show(result, table, as_json)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say what this installation has, what is slow, and why.

    Example: isthmus doctor
    """
    from isthmus.launch.doctor import examine

    findings = examine()
    table = Table(title=f"isthmus {isthmus.__version__}", show_header=False)
    for finding in findings:
        table.add_row(finding.name, finding.value, escape(finding.advice))
    _show({finding.name: finding.value for finding in findings}, table, as_json)


def _load(source: str, undirected: bool, directed: bool, report: Callable | None) -> Graph:
    from isthmus.graph import load

    graph = load(source, undirected=undirected, directed=directed, progress=report)
    for note in graph.notes:
        err.print(f"note: {escape(note)}", soft_wrap=True)
    return graph


def _recipe_facts(recipe: Recipe) -> dict[str, Any]:
    options = {name: {"default": option.default, "help": option.help} for name, option in recipe.options.items()}
    return {"summary": recipe.summary, "paper": recipe.paper, "notes": recipe.notes, "options": options}


def _settings(pairs: list[str]) -> dict[str, Any]:
    """name=value pairs; values are read as json where they can be, else as text."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--set {pair} has no value: write --set name=value")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings


def _report(stage: str, done: int, total: int) -> None:
    """Progress of long work before training: one line at the beginning of each stage, a counter on a terminal."""
    if err.is_terminal and total > 1:
        err.print(f"{stage} {done}/{total}", end="\r" if done < total else "\n", highlight=False)
    elif done == 0:
        err.print(f"{stage} …", highlight=False)


def _show(result: dict[str, Any], table: Any, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result), flush=True)
    else:
        out.print(table)


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
