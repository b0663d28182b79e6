"""The command compare, which runs several recipes and compares them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.markup import escape
from rich.table import Table

from isthmus.cli.network import Link, quiet_torch
from isthmus.cli.shared import Json, app, err, of_run, of_workers, out, show
from isthmus.errors import InputError

if TYPE_CHECKING:
    from isthmus.recipes.parse import Entry
    from isthmus.report import Comparison


@app.command(takes="compare")
def compare(
    source: Annotated[
        str | None,
        typer.Argument(metavar="SOURCE", help="Parts folder, .npz, … as for train; with --panel, one more."),
    ] = None,
    recipes: Annotated[
        str, typer.Option(help='Separated by commas, with their options: "vanilla, bns rate=0.1 bits=8, pipegcn".')
    ] = "vanilla, exact, bns, pipegcn",
    workers: Annotated[
        int | None, of_workers(help="Default: one per part (4 if not yet cut); fewer take several each.")
    ] = None,
    panel: Annotated[
        Path | None, typer.Option(help="Compare on every .npz and parts folder here: points from exact, worst first.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each recipe: seeds 0, 1, …")] = 3,
    link: Link = None,
    hosts: Annotated[int | None, of_workers(help="With --link: number of hosts; default: one per worker.")] = None,
    target: Annotated[
        float | None, typer.Option(help="The score to reach; default: 99 % of the best of vanilla.")
    ] = None,
    out_folder: Annotated[
        Path | None, of_run("--out", help="Default: the next of comparisons/1, comparisons/2, …")
    ] = None,
    resume: Annotated[bool, of_run("--resume", help="Keep the finished runs in --out, do the others.")] = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Run recipes in turns on the same parts: time, bytes, memory and accuracy side by side, and a page about them.

    Example: isthmus compare synthetic:flickr@0.1 --recipes "vanilla, exact, bns rate=0.1" --link 300mbit

    A run that fails does not stop the others; the exit status is then 3.
    """
    quiet_torch()
    from isthmus.api.options import config_of
    from isthmus.api.source import cutter
    from isthmus.experiments.compare import CompareRequest
    from isthmus.experiments.compare import compare as run_all
    from isthmus.experiments.panel import sources
    from isthmus.launch.start import free_folder
    from isthmus.recipes.parse import read_entries
    from isthmus.report import read_comparison, write_comparison

    plan = CompareRequest(
        read_entries(recipes),
        config_of(options),
        *(seeds, workers, link, hosts),
        *(options[name] for name in ("threads", "timeout", "device")),
    )
    if resume and out_folder is None:
        raise InputError("--resume needs the comparison's folder: give --out DIR")
    folder = out_folder or free_folder(Path("comparisons"))
    tell = None if options["quiet"] else lambda text: err.print(escape(text), soft_wrap=True, highlight=False)

    def run(source: str, folder: Path, new: bool = False) -> int:
        # The traffic on links is compared: few halo rows matter more than few cut edges.
        cut = cutter(source, {"method": "metis", "objective": "vol"}, options, quiet=options["quiet"])
        again = resume and (not panel or folder.exists())
        return run_all(plan, source, folder, cut, resume=again, tell=tell, new=new)

    if panel is not None:
        return _panel(run, sources(panel, source), folder, read_entries(recipes), as_json)
    if source is None:
        raise InputError("there is nothing to compare on: give SOURCE, or --panel FOLDER")
    failed = run(source, folder, new=out_folder is None)
    comparison, page = read_comparison(folder, target), folder / "compare.html"
    write_comparison(comparison, page)
    show({**comparison.as_dict(), "page": str(page)}, _tables(comparison), as_json)
    if not as_json:
        _explain(comparison, page)
    if failed:
        raise typer.Exit(3)


def _panel(
    run: Callable[[str, Path], int], graphs: dict[str, str], folder: Path, entries: Sequence[Entry], as_json: bool
) -> None:
    """Compare the recipes on every graph, and show all of them in one table."""
    from isthmus.experiments.panel import check
    from isthmus.report import cells_of, read_comparison, worst_first, write_comparison, write_panel
    from isthmus.report.comparison_page import lead
    from isthmus.report.panel import columns

    check(entries)
    failed, cells, leads = 0, [], []
    for name, source in graphs.items():
        if not as_json:
            err.print(f"[bold]{escape(name)}[/]")
        failed += run(source, folder / name)
        comparison = read_comparison(folder / name, None)
        write_comparison(comparison, folder / name / "compare.html")
        cells += cells_of(comparison)
        leads.append(lead(comparison.asked).replace(str(comparison.asked["graph"]), f"{len(graphs)} graphs"))
        page = write_panel(worst_first(cells), leads[-1], folder)  # as far as it has come
    cells = worst_first(cells)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    found = columns(cells)
    for column in found:
        table.add_column(column)
    for row in zip(*found.values(), strict=True):
        table.add_row(*map(escape, row))
    show({"folder": str(folder), "panel": [cell.as_dict() for cell in cells], "page": str(page)}, table, as_json)
    if failed:
        raise typer.Exit(3)


def _tables(comparison: Comparison) -> Group:
    """Return what the recipes achieve and what they cost, as two tables that fit a narrow terminal."""
    from isthmus.report.comparison_page import achieved, costs, lead

    tables = []
    for columns in (achieved(comparison), costs(comparison)):
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column("recipe")
        for name in columns:
            table.add_column(name.replace(" ", "\n"), justify="right", no_wrap=True)
        for place, one in enumerate(comparison.contenders):
            failed = f"\n[red]{len(one.failures)} failed[/]" if one.failures else ""
            table.add_row(escape(one.label) + failed, *(cells[place] for cells in columns.values()))
        tables.append(table)
    return Group(escape(lead(comparison.asked)), *tables)


def _explain(comparison: Comparison, page: Path) -> None:
    from isthmus.report.comparison_page import explanation

    out.print(escape(explanation(comparison)), soft_wrap=True, highlight=False)
    for one in comparison.contenders:
        for seed, error in one.failures.items():
            err.print(f"[red]failed:[/] {escape(f'{one.label}, seed {seed}: {error}')}", soft_wrap=True)
    out.print(f"wrote {escape(str(page))}", soft_wrap=True, highlight=False)
