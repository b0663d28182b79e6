"""The results as a page (markdown) and as numbers (json)."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

import isthmus
from isthmus.errors import InputError
from isthmus.testbed import written
from papers.beds import BEDS, WORKERS
from papers.measure import ALIKE, Narrow
from papers.run import Before, Results
from papers.table import QUANTITIES, Cell, Column, Figures, Key, Paper, Published, Table, cell

NONE = "–"


def machine() -> str:
    """What the figures were measured on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = f"torch {torch.__version__}, isthmus {isthmus.__version__}"
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, no GPU, {versions}"


def quantity(name: str, value: float | None) -> str:
    """A figure in its unit."""
    if value is None:
        return NONE
    unit = QUANTITIES[name].unit
    if unit == "seconds":
        return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms"
    if unit == "bytes":
        return f"{value / 1e6:.2f} MB" if value < 1e7 else f"{value / 1e6:,.0f} MB"
    if unit == "ratio":
        return f"{value:.2f}"
    return f"{value:.2f} %" if unit == "percent" else f"{value:,.0f}"


def related(column: Column, value: Published) -> str:
    """A relation to the base: 2.60×, +0.20 points, or the figure itself."""
    if value is None:
        return NONE
    if isinstance(value, tuple):
        return " to ".join(related(column, one) for one in value)
    if column.relation == "plain":
        return quantity(column.quantity, value)
    return f"{value:+.2f}" if column.relation == "points" else f"{value:.2f}×"


def against(column: Column, base: str) -> str:
    return {"speed-up": f"speed-up over {base}", "share": f"× {base}", "points": f"points from {base}"}[column.relation]


def reflowed(text: str) -> str:
    """Paragraphs, each in one line."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


def markdown_table(table: Table, graph: str, results: Results) -> str:
    head = ["method"]
    for column in table.columns:
        head += (
            [column.name] if column.relation == "plain" else [column.name, against(column, column.base or table.base)]
        )
        head.append("published")
    rows = []
    for row in table.rows:
        words = [f"**{row.name}**" if row.name == table.base else row.name]
        for column in table.columns:
            found = cell(table, row, column, graph, results.figures)
            words.append(quantity(column.quantity, found.measured))
            words += [related(column, found.ours)] if column.relation != "plain" else []
            words.append(related(column, found.published))
        rows.append(words)
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(words)} |" for words in lines)


def differences(table: Table, graph: str, results: Results) -> str:
    """Where ours and the published relation are far apart, in words."""
    far = [
        f"{row.name} ({column.name}: {related(column, found.ours)}, published {related(column, found.published)})"
        for row in table.rows
        for column in table.columns
        if (found := cell(table, row, column, graph, results.figures)).apart(column.relation)
    ]
    if not far:
        return "No figure is more than a quarter (scores: half a point) away from the published one."
    return "More than a quarter (scores: half a point) away from the published figure: " + "; ".join(far) + "."


def _setting(paper: Paper, results: Results) -> str:
    """Graphs, models and links of the paper's tables."""
    head = ["graph", "nodes", "edges", "halo rows, METIS", "model", "published model", "steps"]
    head += ["link", "vanilla alone", "over the link", "waiting"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for graph in dict.fromkeys(graph for table in paper.tables for graph in table.graphs):
        book, narrow, bed = results.books.get((graph, "metis")), results.links.get(graph), BEDS[graph]
        if book is None:
            continue
        halo = sum(part.halo for part in book.parts)
        words = [
            book.name,
            f"{book.nodes:,}",
            f"{book.edges:,}",
            f"{halo:,}",
            f"{bed.model.upper()} {bed.layers} × {bed.hidden}",
            bed.published,
            str(bed.learning_steps(results.size)),
        ]
        if narrow is None:
            words += ["none"] + [NONE] * 3
        else:
            times = (quantity("step", seconds) for seconds in (narrow.compute, narrow.step))
            words += [written(narrow.rate), *times, f"{narrow.share:.0%}"]
        lines.append(f"| {' | '.join(words)} |")
    return "\n".join(lines)


def page(paper: Paper, results: Results, command: str) -> str:
    size, shown = results.size, results.size.graphs
    beds = [BEDS[graph] for graph in dict.fromkeys(graph for table in paper.tables for graph in table.graphs)]
    steps = " or ".join(dict.fromkeys(str(bed.steps_over_links(size) - 1) for bed in beds))
    hosts = "" if all(bed.hosts == WORKERS for bed in beds) else f" on {min(bed.hosts for bed in beds)} hosts"
    parts = [
        f"# {paper.title}: its tables, done again",
        f"Made by `{command}` on {machine()}; {WORKERS} workers of one thread{hosts}. Published "
        f"figures: {paper.hardware}. Hardware, graphs and models differ, so ratios to the same base are compared, not "
        "seconds. Methods run as published (`savings=as-published`) but for the rows called *here*, which are this "
        "library's defaults.",
        f"Times are of {steps} steps over links between network namespaces, chosen so that `vanilla` "
        "waits for three quarters of a step; entries take turns until the two fastest of each are within "
        f"{ALIKE - 1:.0%}, and the mean of these counts. Scores and bytes are of trainings without a limit (*steps*), "
        "seed 0, best validation step. Why figures differ is said from reading the papers and the code; those reasons "
        "were not measured one by one."
        + (" Rows that were added later were timed beside `vanilla`, and stand in its earlier time." * results.added),
        _setting(paper, results),
    ]
    for table in paper.tables:
        parts += [f"## {table.name}", table.about]
        for graph in table.graphs:
            if shown is None or graph in shown:
                parts += [f"### {table.name}: {graph}", markdown_table(table, graph, results)]
                parts.append(differences(table, graph, results))
        parts.append("**Why they differ.** " + reflowed(table.why))
    if results.failed:
        parts += ["## Runs that failed", "\n".join(f"- {failure}" for failure in results.failed)]
    return "\n\n".join(parts) + "\n"


def numbers(paper: Paper, results: Results) -> dict[str, Any]:
    """All of the page's figures, and those behind them."""
    shown, graphs = results.size.graphs, {graph for table in paper.tables for graph in table.graphs}

    def as_dict(found: Cell) -> dict[str, Any]:
        return {"measured": found.measured, "ours": found.ours, "published": found.published}

    return {
        "paper": paper.title,
        "machine": machine(),
        "workers": WORKERS,
        "size": results.size.name,
        "links": {
            graph: {
                "bits_per_second": n.rate,
                "alone": n.compute,
                "step": n.step,
                "waiting": n.share,
                "busiest": n.busiest,
            }
            for graph, n in results.links.items()
            if graph in graphs
        },
        "runs": [
            {"graph": graph, "cut": cut, "entry": entry, **figures}
            for (graph, cut, entry), figures in results.figures.items()
            if graph in graphs
        ],
        "tables": [
            {
                "table": table.name,
                "graph": graph,
                "base": table.base,
                "rows": {
                    row.name: {c.name: as_dict(cell(table, row, c, graph, results.figures)) for c in table.columns}
                    for row in table.rows
                },
            }
            for table in paper.tables
            for graph in table.graphs
            if shown is None or graph in shown
        ],
        "failed": results.failed,
        "seconds": results.seconds,
    }


def write(paper: Paper, results: Results, command: str, folder: Path) -> Path:
    """Both files; returns the page's."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = _stem(paper, results.size.name)
    (folder / f"{stem}.json").write_text(json.dumps(numbers(paper, results), indent=1) + "\n")
    (folder / f"{stem}.md").write_text(page(paper, results, command))
    return folder / f"{stem}.md"


def learnt_before(folder: Path, papers: Iterable[Paper], size: str) -> dict[Key, Figures]:
    """What an earlier run's numbers say of trainings: score, bytes sent, steps to converge."""
    found: dict[Key, Figures] = {}
    for paper in papers:
        for one in json.loads((folder / f"{_stem(paper, size)}.json").read_text())["runs"]:
            if "score" in one:
                mine = {name: one[name] for name in one if name in ("score", "sent", "rows") or name.endswith("third")}
                if "converge" in one:
                    mine["steps"] = one["converge"] / one["step"]
                found[one["graph"], one["cut"], one["entry"]] = mine
    return found


def links_before(folder: Path, papers: Iterable[Paper], size: str) -> dict[str, float]:
    """The links' rates, by graph, that an earlier run on this machine chose; none where there was no such run."""
    files = [folder / f"{_stem(paper, size)}.json" for paper in papers]
    runs = [json.loads(file.read_text()) for file in files if file.exists()]
    here = [run["links"] for run in runs if run["machine"] == machine()]
    return {graph: narrow["bits_per_second"] for links in here for graph, narrow in links.items()}


def figures_before(folder: Path, papers: Iterable[Paper], size: str) -> Before:
    """Return all figures of pages that were written on this machine, and their links."""
    figures: dict[Key, Figures] = {}
    links: dict[str, Narrow] = {}
    for paper in papers:
        file = folder / f"{_stem(paper, size)}.json"
        stored = json.loads(file.read_text()) if file.exists() else {"machine": "no page"}
        if stored["machine"] != machine():
            raise InputError(f"{file} is of {stored['machine']}: --add takes a page that was made on {machine()}")
        for name, link in stored["links"].items():
            links[name] = Narrow(*(link[each] for each in ("bits_per_second", "alone", "step", "waiting", "busiest")))
        for one in stored["runs"]:
            key = one.pop("graph"), one.pop("cut"), one.pop("entry")
            figures[key] = one | dict(figures.get(key, {}))
    return Before(figures, links)


def _stem(paper: Paper, size: str) -> str:
    return paper.name if size == "minutes" else f"{paper.name}-{size}"
