"""A panel: recipes over many graphs, each measured from exact training on the same graph; the worst case first."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.files.atomic import write_whole
from isthmus.report.comparison import Comparison
from isthmus.report.contender import Contender, Spread
from isthmus.report.page import document, write_page
from isthmus.report.run import Run
from isthmus.report.text import NONE, escape, number

BASE = "exact"


@dataclass(frozen=True)
class Cell:
    """One recipe on one graph, against the base there, seed by seed."""

    graph: str
    label: str
    base: Spread | None  # score of the base
    points: Spread | None  # score − that of the base, in hundredths
    speed_up: Spread | None  # mean step of the base / the recipe's
    failed: int

    @property
    def error(self) -> float | None:
        """Two standard errors of the mean difference; None of a single seed."""
        if self.points is None or self.points.std is None:
            return None
        return 2 * self.points.std / math.sqrt(len(self.points.values))

    def as_dict(self) -> dict[str, Any]:
        def mean(spread: Spread | None) -> float | None:
            return None if spread is None else spread.mean

        about = {"graph": self.graph, "recipe": self.label, BASE: mean(self.base), "points": mean(self.points)}
        return {**about, "two_errors": self.error, "speed_up": mean(self.speed_up), "failed": self.failed}


def cells_of(comparison: Comparison) -> list[Cell]:
    """Return the cells of one graph, without the base itself."""
    base = next(one for one in comparison.contenders if one.label == BASE)
    return [_cell(comparison, base, one) for one in comparison.contenders if one is not base]


def _cell(comparison: Comparison, base: Contender, one: Contender) -> Cell:
    def pairs(of: Callable[[Run], float | None]) -> list[tuple[float, float]]:
        both = [(of(base.runs[seed]), of(run)) for seed, run in one.runs.items() if seed in base.runs]
        return [(before, now) for before, now in both if before is not None and now is not None]

    points = Spread.of(100 * (now - before) for before, now in pairs(lambda run: run.test))
    faster = Spread.of(before / now for before, now in pairs(_mean_step) if now)
    return Cell(str(comparison.asked["graph"]), one.label, base.test, points, faster, len(one.failures))


def _mean_step(run: Run) -> float | None:
    """Return the mean length of a step: a guarded run has steps of two kinds, so that a median would hide one."""
    known = [seconds for line in run.metrics if (seconds := number(line.get("seconds"))) is not None]
    return statistics.fmean(known) if known else None


def worst_first(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells in the order of what they lose; those without any figure come first."""
    return sorted(cells, key=lambda cell: -math.inf if cell.points is None else cell.points.mean)


def columns(cells: Sequence[Cell]) -> dict[str, list[str]]:
    """Return the table of a panel, as text."""
    return {
        "graph": [cell.graph for cell in cells],
        "recipe": [cell.label for cell in cells],
        BASE: [NONE if cell.base is None else f"{100 * cell.base.mean:.2f}" for cell in cells],
        f"points from {BASE}": [_points(cell) for cell in cells],
        "speed-up": [NONE if cell.speed_up is None else f"{cell.speed_up.mean:.2f} ×" for cell in cells],
        "failed": [str(cell.failed or "") for cell in cells],
    }


def _points(cell: Cell) -> str:
    if cell.points is None:
        return NONE
    return f"{cell.points.mean:+.2f}" + ("" if cell.error is None else f" ± {cell.error:.2f}")


def markdown(cells: Sequence[Cell]) -> str:
    """Return the table of a panel for a page of documentation."""
    found = {name: texts for name, texts in columns(cells).items() if name != "failed" or any(texts)}
    head = ["| " + " | ".join(found) + " |", "|" + "---|" * len(found)]
    return "\n".join([*head, *("| " + " | ".join(row) + " |" for row in zip(*found.values(), strict=True))]) + "\n"


def write_panel(cells: Sequence[Cell], lead: str, folder: Path) -> Path:
    """Write panel.html and panel.md into the folder; return the page."""
    page = folder / "panel.html"
    note = "Means over seeds of the difference to exact training with the same seed, and two standard errors of it."
    write_page(document("A panel of graphs", escape(lead), _table(columns(cells)), [("", escape(note))]), page)
    write_whole(folder / "panel.md", markdown(cells))
    return page


def _table(found: dict[str, list[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in found)
    rows = ("".join(f"<td>{escape(text)}</td>" for text in row) for row in zip(*found.values(), strict=True))
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="wide"><table class="glance"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
