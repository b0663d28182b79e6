"""The command plan, which predicts the cost of training."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from isthmus.cli.network import quiet_torch
from isthmus.cli.shared import Json, Source, app, err, out, show
from isthmus.errors import InputError

if TYPE_CHECKING:
    from isthmus.experiments.plan import Outlook, Outlooks
    from isthmus.partition import Book

DEFAULT_PARTS = 4


@app.command(takes="plan")
def plan(
    source: Source,
    parts: Annotated[int | None, typer.Option(help="Parts of a graph that is not yet cut; default 4.")] = None,
    workers: Annotated[int | None, typer.Option(help="Default: one per part; fewer take several parts each.")] = None,
    link: Annotated[
        str | None, typer.Option(help="Of every machine, such as 10gbit; default: all workers on this one.")
    ] = None,
    hosts: Annotated[int | None, typer.Option(help="Machines like this one; default: one per worker.")] = None,
    testbed: Annotated[
        bool, typer.Option("--testbed", help="With --link: on this machine's cores, as compare --link runs.")
    ] = False,
    memory: Annotated[str | None, typer.Option(help="Per machine, such as 16GiB; default: that of this one.")] = None,
    device_memory: Annotated[
        str | None, typer.Option(help="Of each worker's accelerator, such as 24GiB; default: of those here, if any.")
    ] = None,
    recipes: Annotated[
        str | None, typer.Option(help='Separated by commas, with their options: "vanilla, bns rate=0.1"; default: all.')
    ] = None,
    steps: Annotated[int, typer.Option(help="Measured per recipe, after 3 that do not count.")] = 6,
    scale: Annotated[
        float, typer.Option(help="Mini-batches: plan for a graph of this kind with so many times as many nodes.")
    ] = 1.0,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Say what each recipe would cost: memory per worker, bytes per step, predicted time of a step.

    Example: isthmus plan synthetic:flickr@0.1 --parts 8 --link 1gbit --model sage

    What cannot fit is refused; if nothing fits, the exit status is 2.
    """
    quiet_torch()
    from isthmus.api.options import config_of
    from isthmus.experiments.plan import PlanRequest
    from isthmus.experiments.plan import plan as look_ahead
    from isthmus.recipes import RECIPES
    from isthmus.recipes.base import FULL_GRAPH
    from isthmus.recipes.parse import read_entries

    # By default those that suit the parts that `_parts` makes.
    known = [name for name, recipe in RECIPES.items() if recipe.plane == FULL_GRAPH and recipe.cut != "vertex"]
    entries = read_entries(recipes or ", ".join(known))
    planes = {RECIPES[entry.recipe].plane for entry in entries}
    if len(planes) > 1:
        raise InputError("full-graph steps and mini-batches are planned apart: give --recipes of one kind")
    for entry in entries:
        RECIPES[entry.recipe].check_plane(options)
    asked = PlanRequest(
        entries,
        config_of(options),
        workers,
        link,
        hosts,
        testbed,
        options["threads"],
        memory,
        device_memory,
        steps,
        scale,
    )
    tell = None if options["quiet"] else lambda text: err.print(escape(text), soft_wrap=True, highlight=False)
    with tempfile.TemporaryDirectory(prefix="isthmus-plan-") as scratch:
        book = _parts(source, parts, Path(scratch) / "parts", options)
        found = look_ahead(asked, book, tell)
    table = _table_of_batches(found) if found.batches else _table(found)
    show(found.as_dict(), table, as_json)
    if not as_json:
        out.print(escape(_assumptions(found, testbed)), soft_wrap=True, highlight=False)


def _parts(source: str, parts: int | None, folder: Path, options: dict[str, Any]) -> Book:
    """Return the parts of the source: its own, or cut as `compare` would cut it."""
    from isthmus.api.source import cutter
    from isthmus.partition import Book, is_parts_folder

    how = {name: options[name] for name in ("seed", "quiet")}
    cut = cutter(source, {"method": "metis", "objective": "vol"}, options, **how)
    if not is_parts_folder(source):
        cut(folder, DEFAULT_PARTS if parts is None else parts)
        return Book.read(folder)
    book = Book.read(source)
    if parts not in (None, book.num_parts):
        raise InputError(f"{source} has {book.num_parts} parts, not {parts}: leave --parts out, or plan for the graph")
    return book


def _table(found: Outlooks) -> Table:
    where = "on this machine" if found.link is None else f"over links of {found.link}"
    title = f"{found.graph} in {found.parts} parts, {found.workers} workers {where}: a step"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("recipe")
    names = ["sent by all", "transfer", "compute", "predicted step", "speed-up", "memory per worker"]
    if found.device_memory is not None:
        names += ["on its device", "features on host"]
    for name in names:
        table.add_column(name.replace(" ", "\n"), justify="right", no_wrap=True)
    for one in found.recipes:
        table.add_row(escape(one.label), *_cells(found, one))
    return table


def _cells(found: Outlooks, one: Outlook) -> list[str]:
    from isthmus.experiments.plan.memory import written

    sent, memory = f"{sum(one.bytes_per_step.values()) / 1e6:,.2f} MB", written(one.memory_per_worker)
    there = [written(one.on_device.features_there), written(one.on_device.features_on_host)]
    there = [] if found.device_memory is None else there
    if not one.fits:
        return [sent, "", "", "[red]does not fit[/]", "", *(f"[red]{size}[/]" for size in (memory, *there))]
    times = (one.transfer_seconds, one.compute_seconds, one.step_seconds)
    return [sent, *(f"{seconds * 1e3:,.1f} ms" for seconds in times), f"{found.speed_up(one):.2f} ×", memory, *there]


def _table_of_batches(found: Outlooks) -> Table:
    """Return a row per figure and a column per recipe."""
    from isthmus.experiments.plan.memory import written

    where = "on this machine" if found.link is None else f"over links of {found.link}"
    larger = "" if found.scale == 1 else f", {found.scale:g} times as large"
    title = f"{found.graph}{larger}: a step of {found.workers} workers {where}"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("")
    for one in found.batches:
        table.add_column(escape(one.label), justify="right")
    rows = {"rows of a worker": "read", "- its own": "own", "- from files": "from_files", "- cached": "cached"}
    for name, key in {**rows, "- asked": "asked"}.items():
        table.add_row(name, *(f"{one.rows[key]:,.0f}" for one in found.batches))
    table.add_row("sent by all", *(f"{sum(one.bytes_per_step.values()) / 1e6:,.2f} MB" for one in found.batches))
    for name in ("transfer", "making", "compute"):
        table.add_row(name, *(f"{getattr(one, f'{name}_seconds') * 1e3:,.1f} ms" for one in found.batches))
    steps = [f"{one.step_seconds * 1e3:,.1f} ms" if one.fits else "[red]does not fit[/]" for one in found.batches]
    table.add_row("predicted step", *steps)
    table.add_row("epoch", *(f"{one.epoch_seconds:,.1f} s" for one in found.batches))
    table.add_row("memory per worker", *(written(one.memory_per_worker) for one in found.batches))
    table.add_row("features per machine", *(written(one.files_per_machine) for one in found.batches))
    return table


def _assumptions(found: Outlooks, testbed: bool) -> str:
    """Return the assumptions behind the figures in one line."""
    from isthmus.experiments.plan.memory import written
    from isthmus.testbed import written as rate

    together = -(-found.workers // found.machines)
    cores = f"{found.machines} machine(s) of {found.cores} core(s) like these, {together} worker(s) on each"
    links = "" if found.link is None else f", each {'host' if testbed else 'machine'} with a link of {found.link}"
    limit = "" if found.memory is None else f"; {written(found.memory)} of memory on each"
    if found.device_memory is not None:
        limit += f", {written(found.device_memory)} on each worker's accelerator (times are those of this CPU)"
    loop = f"{rate(8 * found.gauge.bandwidth)} and {found.gauge.latency * 1e6:.0f} µs"
    if found.batches:
        larger = "" if found.scale == 1 else " A larger graph's batches read as many rows, of as many parts."
        return (
            f"Assumed: {cores}, {found.threads} thread(s) per worker{links}{limit}. Batches are made "
            f"and sent beside computing, with cores for both; feature files are in memory.{larger} Not counted: the "
            "first step, evaluations, distances."
        )
    return (
        f"Assumed: {cores}, {found.threads} thread(s) per worker{links}{limit}. Messages cost what they do here over "
        f"loopback ({loop}). Not counted: the first step, evaluations, real distances."
    )
