"""The commands shown in the documentation: all are spelt right, and those of these pages are run as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from docs.pages import PAGES, RECIPE_PAGES, ROOT, name_of
from graphs import community_graph, npz
from typer.testing import CliRunner

from isthmus.cli import app
from isthmus.launch.entries import read_entries
from isthmus.partition import partition
from isthmus.recipes import find
from isthmus.recipes.given import given

RUN = [*RECIPE_PAGES, *(ROOT / "docs" / name for name in ("recipes.md", "variance.md", "faq.md"))]
COMMANDS = typer.main.get_command(app).commands


def shown(page: Path) -> list[list[str]]:
    """The arguments of every isthmus command in a page's shell blocks; lines with … or [ are patterns, not commands."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    lines = (line for block in blocks for line in block.splitlines() if not re.search(r"…|\[", line.split("#")[0]))
    found = (re.search(r"(?:^|\s)isthmus (.*)", line) for line in lines)
    return [shlex.split(match[1], comments=True) for match in found if match]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_are_spelt_right(page):
    for name, *arguments in shown(page):
        asked = COMMANDS[name].make_context(name, arguments).params
        if name == "train":
            find(asked["recipe"]).policy(find(asked["recipe"]).settings(given(asked["settings"] or [])))
        if name == "compare":
            read_entries(asked["recipes"])


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_commands_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    partition(community_graph(), 2, out="parts")
    npz(Path("mine.npz"))
    commands = shown(page)
    assert commands
    for command in commands:
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, f"isthmus {shlex.join(command)}: {done.exception or done.output}"
