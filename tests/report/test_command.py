"""`isthmus report` as a person meets it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from report.folders import run_folder

from isthmus import cli


@pytest.fixture
def report(monkeypatch, capsys, tmp_path):
    """Runs the command in an empty folder; gives (exit status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["isthmus", "report", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err

    return run


def test_where_the_page_goes(report, tmp_path):
    for name in ("a", "b"):
        run_folder(tmp_path / name)
    assert report("a") == (0, "wrote a/report.html\n", "")
    assert report("a", "b") == (0, "wrote report.html\n", "")
    assert report("a", "b", "--out", "there.html") == (0, "wrote there.html\n", "")
    for page in ("a/report.html", "report.html", "there.html"):
        assert Path(page).read_text().startswith("<!doctype html>")


def test_json(report, tmp_path):
    run_folder(tmp_path / "a")
    status, said, _ = report("a", "--json")
    result = json.loads(said.splitlines()[-1])
    assert (status, result["page"], result["runs"][0]["recipe"]) == (0, "a/report.html", "exact")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing",), "there is no run folder nothing"),
        (("empty",), "empty is not a run folder"),
        (("damaged",), "damaged/metrics.jsonl, line 4: damaged json"),
        (("whole", "--out", "no/page.html"), "no/page.html (No such file or directory): make the folder no, or"),
        (("whole", "--out", "whole/config.json/page.html"), "config.json/page.html (Not a directory): make the folder"),
        (("whole", "--out", "empty"), "cannot write empty (Is a directory): give another --out"),
    ],
)
def test_what_is_wrong_is_one_line_and_status_2(report, tmp_path, monkeypatch, arguments, words):
    (tmp_path / "empty").mkdir()
    run_folder(tmp_path / "whole")
    damaged = run_folder(tmp_path / "damaged") / "metrics.jsonl"
    damaged.write_text(damaged.read_text()[:-9] + "\n")
    monkeypatch.setenv("COLUMNS", "60")  # one line, however narrow the terminal
    status, said, complaint = report(*arguments)
    assert (status, said, complaint.count("\n")) == (2, "", 1)
    assert words in complaint
    assert not list(tmp_path.rglob("*.html"))


def test_read_only_disk(report, tmp_path, monkeypatch):
    """There nothing can be removed either."""
    run_folder(tmp_path / "run")

    def refuse(*anything):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    status, _, complaint = report("run")
    assert (status, complaint.count("\n")) == (2, 1)
    assert "cannot write run/report.html (Read-only file system): give another --out" in complaint
