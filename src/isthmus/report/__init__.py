"""Reports: one self-contained HTML page about one or several runs, or about a comparison of recipes."""

from isthmus.report.comparison import Comparison, read_comparison
from isthmus.report.comparison_page import write_comparison
from isthmus.report.page import page, write
from isthmus.report.panel import cells_of, worst_first, write_panel
from isthmus.report.read import read_runs
from isthmus.report.run import Run
from isthmus.report.runs_table import overview

__all__ = [
    "Comparison",
    "Run",
    "cells_of",
    "overview",
    "page",
    "read_comparison",
    "read_runs",
    "worst_first",
    "write",
    "write_comparison",
    "write_panel",
]
