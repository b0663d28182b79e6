"""Commands that only inform: recipes, report, variance, doctor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.markup import escape
from rich.table import Table

import isthmus
from isthmus.cli.shared import Json, app, of_the_rest, out, show
from isthmus.console import report_progress

if TYPE_CHECKING:
    from isthmus.comm import Transport
    from isthmus.diagnose.meeting import Meeting
    from isthmus.recipes import Recipe

MOST_LINKS = 12  # shown to a person; --json has all of them


@app.command()
def recipes(
    name: Annotated[str | None, typer.Argument(help="The recipe to explain.")] = None,
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
        show({recipe.name: _recipe_facts(recipe) for recipe in RECIPES.values()}, table, as_json)
        if not as_json:
            out.print(f"Most recipes also take {', '.join(CODED)}. More: isthmus recipes NAME", soft_wrap=True)
        return
    recipe = find(name)
    table = Table("option", "default", "meaning", title=f"{recipe.name}: {escape(recipe.summary)}")
    for option, about in recipe.options.items():
        table.add_row(option, str(about.default), escape(about.help))
    show(_recipe_facts(recipe), table, as_json)
    if not as_json:
        cut = f"{recipe.method}, objective {recipe.objective}" if recipe.objective else recipe.method
        cut += f" ({recipe.cut} cut)" if recipe.cut != "edge" else ""
        for line in (f"Paper: {recipe.paper}", f"Graphs not yet cut are cut by {cut}.", recipe.notes):
            out.print(escape(line), soft_wrap=True, highlight=False)


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
    show({"page": str(page), "runs": overview(found)}, f"wrote {escape(str(page))}", as_json)


@app.command()
def variance(
    folder: Annotated[Path, typer.Argument(help="A parts folder.")],
    rate: Annotated[float, typer.Option(help="Share of edges that is kept; boundary samplers: of halo rows.")] = 0.1,
    draws: Annotated[int, typer.Option(help="Graphs drawn by each sampler.")] = 200,
    width: Annotated[int, typer.Option(help="Width of the rows that are aggregated.")] = 64,
    norm: Annotated[str, typer.Option(help="The aggregation: mean, gcn or sum.")] = "mean",
    features: Annotated[
        str, typer.Option(help="own: the graph's, projected, through relu; random: of log-normal lengths.")
    ] = "own",
    samplers: Annotated[
        str | None, typer.Option(help="Some of independent,coupled,optimal-boundary,boundary,boundary-edge.")
    ] = None,
    seed: Annotated[int, of_the_rest(help="For every random draw.")] = 0,
    as_json: Json = False,
) -> None:
    """Compare samplers without training: how far their draws scatter, for the rows that they fetch.

    Example: isthmus variance parts --rate 0.1 --draws 50
    """
    from isthmus.comm import Hub
    from isthmus.engine import TrainConfig
    from isthmus.engine.prepare import Data
    from isthmus.kernels import HostRows
    from isthmus.local import LocalGraph
    from isthmus.partition import Book
    from isthmus.sample.variance import SAMPLERS, Aggregation, Question, compare
    from isthmus.shard import DrawContext

    names = tuple(SAMPLERS) if samplers is None else tuple(name.strip() for name in samplers.split(","))
    asked, book = Question(rate, draws, width, norm, features, names, seed), Book.read(folder)

    def work(transport: Transport) -> dict[str, Any]:
        part = book.part(transport.rank)
        graph = LocalGraph.from_part(part, transport, book.symmetric)
        data = Data.of(part, TrainConfig(), transport)
        assert not isinstance(data.x, HostRows)
        rows = asked.rows(data.x, transport.rank)
        aggregation = Aggregation.of(DrawContext(graph.runtime.whole, transport, seed), rows, norm)
        return compare(aggregation, asked, report_progress if transport.rank == 0 else lambda what, done, total: None)

    found = {"graph": book.name, "parts": book.num_parts, **Hub(book.num_parts, timeout=3600).run(work)[0]}
    show(found, _variance_tables(found), as_json)


@app.command()
def doctor(
    timeout: Annotated[float, typer.Option(help="Seconds that a worker waits for another.")] = 300.0,
    as_json: Json = False,
) -> None:
    """Say what this installation has, what is wrong or slow, and how to mend it.

    Example: isthmus doctor

    Under torchrun or srun the workers also measure the links between them:
    torchrun --nproc-per-node 2 -m isthmus doctor
    """
    from isthmus.diagnose.doctor import examine
    from isthmus.diagnose.meeting import meet
    from isthmus.launch.place import detect

    place, findings = detect(), examine()
    meeting = None if place is None or place.size == 1 else meet(place, timeout)
    if place is not None and place.rank > 0:
        return
    if meeting is not None:
        findings += meeting.findings()
    table = Table(title=f"isthmus {isthmus.__version__}", show_header=False)
    for one in findings:
        table.add_row(f"[red]✗ {one.name}[/]" if one.wrong else one.name, escape(one.value), escape(one.advice))
    found: dict[str, Any] = {one.name: one.value for one in findings}
    found["wrong"] = {one.name: one.advice for one in findings if one.wrong}
    if meeting is None:
        show(found, table, as_json)
    else:
        show(found | meeting.as_dict(), Group(table, _links_table(meeting)), as_json)
    if not as_json:
        out.print(f"[red]{len(found['wrong'])} to mend[/]" if found["wrong"] else "nothing is wrong")


def _links_table(meeting: Meeting) -> Table:
    """Return a table of the links, the slowest first."""
    from isthmus.testbed import written

    links = sorted(meeting.links, key=lambda link: link.bits_per_second)
    few = f", the slowest {MOST_LINKS} of {len(links)}" if len(links) > MOST_LINKS else ""
    table = Table("from", "to", title=f"links between workers{few}")
    for column in ("rate", "latency"):
        table.add_column(column, justify="right")
    for link in links[:MOST_LINKS]:
        latency = f"{link.latency_seconds * 1e3:.3g} ms"
        table.add_row(str(link.source), str(link.target), written(link.bits_per_second), latency)
    return table


def _recipe_facts(recipe: Recipe) -> dict[str, Any]:
    options = {name: {"default": option.default, "help": option.help} for name, option in recipe.options.items()}
    return {"summary": recipe.summary, "paper": recipe.paper, "notes": recipe.notes, "options": options}


def _variance_tables(found: dict[str, Any]) -> Group:
    same_rate = f"{escape(found['graph'])} in {found['parts']} parts: every sampler at rate {found['rate']:g}"
    same_rows = "each at the rate where it fetches as many rows as independent does above"
    tables = _trials(same_rate, found["equal_rate"]), _trials(same_rows, found["equal_traffic"])
    return Group(*tables, *_findings(found))


def _trials(title: str, trials: list[dict[str, Any]]) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("sampler", no_wrap=True)
    for column in ("rate", "rows\nfetched", "by inner\nedges", "by halo\nedges", "in all"):
        table.add_column(column, justify="right")
    for one in trials:
        parts = (_variance(one, which) for which in ("inner", "halo", "all"))
        table.add_row(one["sampler"], f"{one['rate']:.3g}", f"{one['rows']:.1%}", *parts)
    return table


def _variance(trial: dict[str, Any], which: str) -> str:
    value, theory = trial["variance"][which], trial["theory"]
    if not value:
        return "0"
    return f"{value:.3g}" if theory is None else f"{value:.3g} ({theory[which]:.3g})"


def _findings(found: dict[str, Any]) -> list[str]:
    def times(pair: str, when: str, what: str) -> str:
        ratio = found[pair][when][what]
        return "–" if ratio is None else f"{ratio:.3g}"

    trials = [*found["equal_rate"], *found["equal_traffic"]]
    shown = ((one["error"][part], value) for one in trials for part, value in one["variance"].items())
    error = max((error / value for error, value in shown if value), default=0)
    lines = [
        f"Rows fetched: of all {found['halo_rows']:,} halo rows. Beside them the variance Σ E‖Z̃ − Z‖² / Σ ‖Z‖² of a "
        f"{found['norm']} aggregation, measured over {found['draws']} draws (standard errors up to {error:.1%}) and, "
        "in brackets, by theory. Independent and coupled drop inner edges too: compare others with them by halo edges."
    ]
    if "coupled_to_independent" in found:
        rows, variance = (times("coupled_to_independent", "equal_rate", what) for what in ("rows", "variance"))
        lines.append(f"At equal rate, coupled fetches {rows} × the rows of independent, at {variance} × its variance.")
    if "optimal_to_boundary" in found:
        few, many = (times("optimal_to_boundary", when, "halo_variance") for when in ("equal_rate", "equal_traffic"))
        lines.append(
            f"Optimal-boundary has {few} × the variance of boundary in the first table, {many} × in the second."
        )
    lemma = found["lemma3"]
    lines.append(
        f"Lemma 3, inner edges weighted by a: {lemma['uniform']:.3g} if p = ε, {lemma['importance']:.3g} if p goes by "
        f"sizes; that is {lemma['difference']:.3g} less, by eq. 20 {lemma['eq20']:.3g}."
    )
    return lines
