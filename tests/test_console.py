"""Progress on a terminal leaves nothing behind of what it showed before, and fits its width."""

from __future__ import annotations

import io
import logging
import re

import pytest

from isthmus import console
from isthmus.console import Teller, note, report_progress


def screen(written: str) -> list[str]:
    """The lines of a terminal on which this was written."""
    lines, column = [""], 0
    for code, letter in re.findall(r"(\x1b\[[0-9;?]*[A-Za-z])|(.)", written, re.DOTALL):
        if code == "\x1b[2K":
            lines[-1] = ""
        elif letter == "\n":
            lines.append("")
            column = 0
        elif letter == "\r":
            column = 0
        elif letter:
            lines[-1] = lines[-1].ljust(column)[:column] + letter + lines[-1][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


@pytest.fixture
def terminal(monkeypatch):
    """What stands on a terminal of 40 columns."""
    written = io.StringIO()
    monkeypatch.setattr(console, "err", Teller(file=written, force_terminal=True, width=40, no_color=True))
    return lambda: screen(written.getvalue())


def test_a_stage_that_ends_early_leaves_no_digits(terminal):
    report_progress("drawing edges", 0, 44988)
    report_progress("drawing edges", 40701, 44988)
    assert terminal() == ["drawing edges 40,701/44,988"]
    report_progress("sorting edges", 0, 1)
    assert terminal() == ["sorting edges …", ""]


def test_counters_end_with_a_line(terminal):
    for done in range(4):
        report_progress("order", done + 1, 4)
    note("something [odd]")
    assert terminal() == ["order 4/4", "note: something [odd]", ""]


def test_a_note_in_between(terminal):
    report_progress("reading a very long [name] of a file indeed", 123456, 999999)
    assert len(terminal()[0]) < 40
    note("something")
    report_progress("order", 1, 4)
    assert terminal() == ["note: something", "order 1/4"]


def test_elsewhere_one_line_for_each_stage(monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(console, "err", Teller(file=written, width=40))
    for done in range(5):
        report_progress("order", done, 4)
    assert written.getvalue() == "order …\n"


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_a_variable_makes_no_terminal(monkeypatch, variable):
    """Notebooks and CI set them for the sake of colours; lines that move would be stacked there."""
    monkeypatch.setenv(variable, "1")
    written = io.StringIO()
    assert not Teller(file=written).is_terminal
    assert Teller(file=written, force_terminal=True).is_terminal


def test_a_program_may_have_notes_elsewhere(monkeypatch):
    """They are records of the logger isthmus."""
    records: list[logging.LogRecord] = []
    mine = logging.Handler()
    monkeypatch.setattr(mine, "emit", records.append)
    monkeypatch.setattr(console.log, "handlers", [mine])
    console.note("50 % [odd]")
    assert [(one.levelname, one.getMessage()) for one in records] == [("WARNING", "50 % [odd]")]


def test_errors_are_printed_as_they_are(capsys):
    console.log.error("%s", "worker 1 was lost")
    assert capsys.readouterr().err == "worker 1 was lost\n"
