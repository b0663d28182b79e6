"""Commands that tell: recipes, report, doctor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

import isthmus
from isthmus.cli.shared import Json, app, out, show

if TYPE_CHECKING:
    from isthmus.recipes import Recipe


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
        show({recipe.name: _recipe_facts(recipe) for recipe in RECIPES.values()}, table, as_json)
        if not as_json:
            out.print(f"Every recipe also takes {', '.join(CODED)}. More: isthmus recipes NAME", soft_wrap=True)
        return
    recipe = find(name)
    table = Table("option", "default", "meaning", title=f"{recipe.name}: {escape(recipe.summary)}")
    for option, about in recipe.options.items():
        table.add_row(option, str(about.default), escape(about.help))
    show(_recipe_facts(recipe), table, as_json)
    if not as_json:
        cut = f"{recipe.method}, objective {recipe.objective}" if recipe.objective else recipe.method
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
def doctor(as_json: Json = False) -> None:
    """Say what this installation has, what is slow, and why.

    Example: isthmus doctor
    """
    from isthmus.launch.doctor import examine

    findings = examine()
    table = Table(title=f"isthmus {isthmus.__version__}", show_header=False)
    for finding in findings:
        table.add_row(finding.name, finding.value, escape(finding.advice))
    show({finding.name: finding.value for finding in findings}, table, as_json)


def _recipe_facts(recipe: Recipe) -> dict[str, Any]:
    options = {name: {"default": option.default, "help": option.help} for name, option in recipe.options.items()}
    return {"summary": recipe.summary, "paper": recipe.paper, "notes": recipe.notes, "options": options}
