"""The page's tables: the runs at a glance, and their options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isthmus.report.run import Run
from isthmus.report.runs_table import base, options, overview
from isthmus.report.text import NONE, count, duration, escape, score, share, size

_MARK = '<span class="mark" title="differs between the runs">≠</span>'


def colour(place: int) -> str:
    """Return the class of the run at this place: six colours, then the same in another stroke."""
    return f"run r{place % 6}" + (f" again{place // 6 % 3}" if place >= 6 else "")


def glance(runs: Sequence[Run]) -> str:
    """Return a table with one row per run; columns that no run has anything for are left out."""
    rows, against = overview(runs), base(runs)
    metrics = list(dict.fromkeys(row["test"]["metric"] for row in rows if row["test"]["metric"])) or ["score"]
    columns = {
        f"test {metrics[0]}" if len(metrics) == 1 else "test score": [_test(row, len(metrics) > 1) for row in rows],
        "median step": [duration(row["step_seconds"]) for row in rows],
        "speed-up": [_times(row["speed_up"]) for row in rows] if len(rows) > 1 else [],
        "sent per step": [size(row["bytes_per_step"]) for row in rows],
        "transfers hidden": [share(row["hidden"]) for row in rows],
        "memory, all workers": [size(row["memory_peak_bytes"]) for row in rows],
        "workers": [NONE if row["workers"] is None else escape(row["workers"]) for row in rows],
        "steps": [count(row["steps"]) for row in rows],
    }
    columns = {name: cells for name, cells in columns.items() if set(cells) - {NONE}}
    head = "".join(f'<th scope="col" class="number">{escape(name)}</th>' for name in columns)
    several = len({row["graph"] for row in rows}) > 1
    body = "".join(
        f'<tr><th scope="row">{run_name(run, place)}{_state(run)}</th>'
        f'<td data-column="recipe">{escape(run.recipe)}</td>'
        + (f'<td data-column="graph">{escape(run.graph)}</td>' if several else "")
        + "".join(
            f'<td class="number" data-column="{escape(name)}">{cells[place]}</td>' for name, cells in columns.items()
        )
        + "</tr>"
        for place, run in enumerate(runs)
    )
    graph = '<th scope="col">graph</th>' if several else ""
    head = f'<tr><th scope="col">run</th><th scope="col">recipe</th>{graph}{head}</tr>'
    note = ""
    if len(runs) > 1:
        note = f"Speed-up: median step time of {escape(against.name)} divided by the run's"
        note = f'<p class="note">{note}{", on the same graph" if several else ""}.</p>'
    return f'<div class="wide"><table class="glance"><thead>{head}</thead><tbody>{body}</tbody></table></div>{note}'


def run_name(run: Run, place: int) -> str:
    return f'<span class="run-name"><i class="swatch {colour(place)}"></i>{escape(run.name)}</span>'


def options_of(runs: Sequence[Run]) -> str:
    """Return a table of the options that differ, marked, with a column per run; under it those that all runs share."""
    found = options(runs)
    differing = [option for option in found if option.differs]
    same = "".join(
        f"<div><dt>{escape(option.name)}</dt><dd>{escape(option.values[0])}</dd></div>"
        for option in found
        if not option.differs
    )
    same = f'<dl class="same">{same}</dl>'
    if not differing:
        return same
    head = "".join(f'<th scope="col">{run_name(run, place)}</th>' for place, run in enumerate(runs))
    rows = "".join(
        f'<tr><th scope="row">{_MARK}{escape(option.name)}</th>'
        + "".join(f"<td>{NONE if value is None else escape(value)}</td>" for value in option.values)
        + "</tr>"
        for option in differing
    )
    table = f'<thead><tr><th scope="col">differs</th>{head}</tr></thead><tbody>{rows}</tbody>'
    return f'<div class="wide"><table class="differing">{table}</table></div>{same}'


def _state(run: Run) -> str:
    if run.summary is not None:
        return ""
    state = f"unfinished: step {count(run.steps_done)} of {run.config.get('steps', '?')}"
    return f'<br><span class="state">{escape(state)}</span>'


def _test(row: dict[str, Any], with_metric: bool) -> str:
    text = score(row["test"]["score"])
    if text != NONE and with_metric:
        text += f" {escape(row['test']['metric'] or '')}"
    return text if row["finished"] or text == NONE else f"{text} so far"


def _times(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f} ×"
