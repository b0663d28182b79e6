"""The figure of errors: estimates of rows, measured gradients, and the guard's decisions in words."""

from pathlib import Path

from isthmus.report.errors import error_figures
from isthmus.report.run import Run


def figure(*lines):
    metrics = [{"step": step, "loss": 1.0, **line} for step, line in enumerate(lines, 1)]
    return "".join(error_figures([Run(Path(), "run", {}, metrics)]))


def test_errors_are_drawn_where_there_are_any():
    assert figure({}, {}) == ""
    assert "gradient of the weights" in figure({"gradient_error": 0.2}, {}, {"gradient_error": 0.1})
    rows = [
        {"row_error": {"0 forward": 0.1}, "guard": {"level": "exact", "next": after}} for after in ("exact", "lossy")
    ]
    drawn = figure(*rows)
    assert "site 0 forward" in drawn
    assert "gradient of the weights" not in drawn
    assert "exact at 2 of 2 steps: lossy after step 2" in drawn


def test_it_says_what_was_decided_and_by_what():
    about = {"level": "exact", "next": "staleness=1 rate=1.0 bits=8", "error": 0.01, "waiting": 2.5}
    back = {"level": "lossy", "next": "exact", "error": 0.07}
    drawn = figure({"row_error": {"0 forward": 0.01}, "guard": about}, {"guard": back})
    assert "bits=8 after step 1, when the error had stayed low (0.01), and steps waited 2.50 times" in drawn
    assert "exact again after step 2, when the error rose to 0.07" in drawn
