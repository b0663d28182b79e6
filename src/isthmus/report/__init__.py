"""Run record → one self-contained HTML page about one or several runs."""

from isthmus.report.compare import overview
from isthmus.report.page import page, write
from isthmus.report.read import read_runs
from isthmus.report.run import Run

__all__ = ["Run", "overview", "page", "read_runs", "write"]
