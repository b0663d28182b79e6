"""The error of rows, step by step, and what a guard decided by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isthmus.report.charts import Line, YAxis, legend, line_chart
from isthmus.report.run import Run
from isthmus.report.text import count, escape, number, plain

_SHADES = 7  # colours that a chart has for things other than runs


def error_figures(runs: Sequence[Run]) -> list[str]:
    """Return a figure for each run whose metrics tell errors of rows or gradients; under it what a guard decided."""
    figures = []
    for run in runs:
        lines = [(line["step"], line["row_error"]) for line in run.metrics if isinstance(line.get("row_error"), dict)]
        names = list(dict.fromkeys(name for _, errors in lines for name in errors))
        probed = [(line["step"], number(line["gradient_error"])) for line in run.metrics if "gradient_error" in line]
        if not names and not probed:
            continue
        drawn = [
            Line(f"site {name}", f"s{k % _SHADES}", [(step, number(errors.get(name))) for step, errors in lines])
            for k, name in enumerate(names)
        ]
        if probed:
            drawn.append(Line("gradient of the weights, measured", f"s{len(names) % _SHADES}", probed))
        title = "Error of rows, estimated" + (f", {run.name}" if len(runs) > 1 else "")
        axis = YAxis(plain, may_log=True)
        chart = line_chart(drawn, title, "step", x_text=lambda x: f"step {count(x)}", y_axis=axis)
        shades = legend([(line.name, line.colour) for line in drawn])
        said = "".join(f'<p class="note">{escape(text)}</p>' for text in [decisions(run)] if text)
        figures.append(f"<figure><figcaption>{escape(title)}</figcaption>{shades}{chart}{said}</figure>")
    return figures


def decisions(run: Run) -> str:
    """Return in words when rows were exact, and why that changed; nothing of a run without a guard."""
    lines = [line for line in run.metrics if isinstance(line.get("guard"), dict)]
    if not lines:
        return ""
    exact = sum(line["guard"].get("level") == "exact" for line in lines)
    text = f"The guard had rows exact at {count(exact)} of {count(len(lines))} steps"
    changes = [_change(line) for line in lines if line["guard"].get("level") != line["guard"].get("next")]
    return text + (": " + "; ".join(changes[:20]) if changes else "") + ("; …" if len(changes) > 20 else ".")


def _change(line: dict[str, Any]) -> str:
    guard, step = line["guard"], count(line["step"])
    error, waiting = plain(number(guard.get("error"))), number(guard.get("waiting"))
    if guard.get("next") == "exact":
        return f"exact again after step {step}, when the error rose to {error}"
    slow = f", and steps waited {waiting:.2f} times as long as they computed" if waiting else ""
    return f"{guard.get('next')} after step {step}, when the error had stayed low ({error}){slow}"
