"""The adaptive cache of a run (CDFGNN fig. 7): its threshold, and the share of rows that were sent, step by step."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.report.charts import Line, YAxis, legend, line_chart
from isthmus.report.run import Run
from isthmus.report.text import count, escape, number, plain, share

_SHADES = 7  # colours that a chart has for things other than runs


def cache_figures(runs: Sequence[Run]) -> list[str]:
    """Return two figures for each run whose lines of metrics tell of a cache: threshold, and rows sent by channel."""
    figures = []
    for run in runs:
        lines = [(line["step"], line["cache"]) for line in run.metrics if isinstance(line.get("cache"), dict)]
        if not lines:
            continue
        whose = f", {run.name}" if len(runs) > 1 else ""
        bound = Line("threshold", "s0", [(step, number(about.get("epsilon"))) for step, about in lines])
        figures.append(_figure(f"Threshold of the cache{whose}", [bound], YAxis(plain, zero=True), ""))
        names = list(dict.fromkeys(name for _, about in lines for name in about.get("sent", {})))
        sent = [
            Line(_words(name), f"s{k % _SHADES}", [(step, number(about["sent"].get(name))) for step, about in lines])
            for k, name in enumerate(names)
        ]
        shades = legend([(line.name, line.colour) for line in sent])
        figures.append(_figure(f"Share of rows sent{whose}", sent, YAxis(share, zero=True), shades))
    return figures


def _figure(title: str, lines: Sequence[Line], y_axis: YAxis, above: str) -> str:
    chart = line_chart(lines, title, "step", x_text=lambda x: f"step {count(x)}", y_axis=y_axis)
    return f"<figure><figcaption>{escape(title)}</figcaption>{above}{chart}</figure>"


def _words(name: str) -> str:
    """Write "1 forward gather" as people say it."""
    site, _, rest = name.partition(" ")
    return f"layer {site}, {rest}"
