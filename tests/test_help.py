"""The help of every command fits a screen, is complete, and shows an example that can be typed."""

from __future__ import annotations

import shlex

import pytest
import typer
from typer.testing import CliRunner

from isthmus.cli import app

LINES, COLUMNS = 80, 100
GROUP = typer.main.get_command(app)


@pytest.mark.parametrize("command", ["", *GROUP.commands])
def test_help_fits_a_screen_and_shows_an_example(command):
    said = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": str(COLUMNS)})
    assert said.exit_code == 0
    lines = said.output.splitlines()
    assert len(lines) <= LINES
    assert max(len(line) for line in lines) <= COLUMNS
    assert "Example: isthmus " in said.output


@pytest.mark.parametrize("command", GROUP.commands)
def test_help_has_every_option_and_its_default(command):
    said = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": str(COLUMNS)})
    for option in (one for one in GROUP.commands[command].params if one.param_type_name == "option"):
        assert f" {option.opts[0]} " in said.output
        if not option.is_flag and option.default is not None:
            assert str(option.default).removesuffix(".0") in said.output


@pytest.mark.parametrize("command", GROUP.commands)
def test_example_can_be_typed(command):
    example = next(text for text in GROUP.commands[command].help.split("\n\n") if text.startswith("Example: "))
    program, name, *arguments = shlex.split(example.removeprefix("Example: "))
    assert (program, name) == ("isthmus", command)
    GROUP.commands[command].make_context(command, arguments)
