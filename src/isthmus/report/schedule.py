"""Charts of what the scheduler of mini-batches decided: batches that wait, use of the processors, launches, waits."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.report.charts import Line, Write, YAxis, line_chart
from isthmus.report.run import Run
from isthmus.report.sections import figure, grid
from isthmus.report.tables import colour
from isthmus.report.text import count, duration, plain

_CHARTS: tuple[tuple[str, str, Write], ...] = (
    ("queue", "Batches that wait, worker 0", count),
    ("busy", "Use of the processors in percent, worker 0", plain),
    ("launched", "Batches begun since the step before, worker 0", count),
    ("waited", "Time that the loop waited for its batch, worker 0", duration),
)


def schedule(runs: Sequence[Run]) -> str:
    """Draw the decisions of schedulers by step; nothing where there is none."""
    logs = {place: run.workers[0].schedule for place, run in enumerate(runs) if run.workers and run.workers[0].schedule}
    if not logs:
        return ""
    figures = []
    for name, title, write in _CHARTS:
        lines = [
            Line(runs[place].name, colour(place), [(step, told.get(name)) for step, told in sorted(log.items())])
            for place, log in logs.items()
        ]
        figures.append(figure(title, line_chart(lines, title, "step", y_axis=YAxis(write, zero=True))))
    return grid(figures)
