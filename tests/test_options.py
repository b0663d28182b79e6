"""An option is declared once: commands, Python, error messages and docs show it."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

import derive
import pytest
import typer
from typer.testing import CliRunner

import isthmus
from isthmus import wording
from isthmus.api import options as api
from isthmus.cli import app
from isthmus.cli.help import Commands
from isthmus.engine import TrainConfig
from isthmus.errors import InputError
from isthmus.nn import ModelConfig
from isthmus.options import by_comma, check_options, in_words, option, options_of, shows

COMMANDS = typer.main.get_command(app).commands
FUNCTIONS = {
    "train": isthmus.train,
    "predict": isthmus.predict,
    "partition": isthmus.partition.partition_source,
    "Worker": isthmus.Worker,
}


@dataclass(frozen=True)
class Painted:
    """Options that nobody has declared before."""

    paint: str = option("red", "The paint: {choices}.", "Model", "train Worker", choices=("red", "green"))
    wet_paint: bool = option(False, "Do not touch.", "Run", "train")
    coats: int | None = option(None, "Layers of paint.", "Model", "train", least=1, below=9)


@pytest.fixture
def painted(monkeypatch):
    monkeypatch.setattr(api, "DECLARED", (*api.DECLARED, Painted))
    for cached in (api.options, wording.known):
        cached.cache_clear()
    yield
    for cached in (api.options, wording.known):
        cached.cache_clear()


@pytest.mark.usefixtures("painted")
def test_one_declaration_reaches_command_python_errors_and_docs():
    fresh, got = Commands(), {}

    @fresh.command(takes="train")
    def train(**options):
        got.update(options)

    said = CliRunner().invoke(fresh, ["--help"], env={"COLUMNS": "100"}).output
    assert re.search(r"--paint red +The paint: red or green\.", said)
    assert re.search(r"--wet-paint +Do not touch\.", said)
    assert CliRunner().invoke(fresh, ["--paint", "green", "--wet-paint"]).exit_code == 0
    assert (got["paint"], got["wet_paint"], got["coats"]) == ("green", True, None)
    assert CliRunner().invoke(fresh, ["--coats", "many"]).exit_code == 2

    assert api.complete("train", {"coats": 3})["paint"] == "red"
    with pytest.raises(InputError, match="predict has no option 'paint'"):
        api.complete("predict", {"paint": "red"})
    keywords = inspect.signature(shows(api.options("Worker").values())(lambda source, **given: None)).parameters
    assert (keywords["paint"].default, "wet_paint" in keywords) == ("red", False)
    assert wording.in_python("leave --wet-paint out, or wet-paint dries") == (
        "leave wet_paint=True out, or wet_paint dries"
    )
    assert '    coats: int | None\n    """Layers of paint."""' in derive.keywords()
    assert "| `--paint` | red | The paint: red or green. |" in derive.options_table("train")
    assert "`paint`" in derive.keyword_list("Worker")


@pytest.mark.parametrize("taker", ["train", "compare", "plan", "verify", "predict", "partition", "Worker"])
def test_every_declared_option_is_there(taker):
    declared = api.options(taker)
    assert declared
    if taker in FUNCTIONS:
        shown = inspect.signature(FUNCTIONS[taker]).parameters
        assert {name: shown[name].default for name in declared} == {n: one.default for n, one in declared.items()}
    if taker in COMMANDS:
        params = {one.name: one for one in COMMANDS[taker].params}
        assert [params[name].opts for name in declared] == [[one.flag] for one in declared.values()]


@pytest.mark.parametrize("path", list(derive.derived()), ids=lambda path: str(path.relative_to(derive.ROOT)))
def test_what_is_derived_is_up_to_date(path):
    assert path.read_text() == derive.derived()[path], "run make derived"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"paint": "blue"}, "unknown paint 'blue': use one of red, green"),
        ({"coats": 0}, "coats must be at least 1 and below 9, not 0"),
        ({"coats": 9}, "coats must be at least 1 and below 9, not 9"),
        ({"coats": float("nan")}, "not nan"),
    ],
)
def test_values_that_the_declaration_excludes(values, words):
    check_options(Painted())
    with pytest.raises(InputError, match=words):
        check_options(Painted(**values))


def test_a_model_from_outside_is_a_choice():
    ModelConfig(model="mine:Net")
    with pytest.raises(InputError, match=r"use one of gcn, sage, gat.*, or your own as package\.module:NAME"):
        ModelConfig(model="mine")


def test_words():
    assert [in_words(names) for names in ((), ("a",), ("a", "b"), ("a", "b", "c"))] == ["", "a", "a or b", "a, b or c"]
    assert by_comma("a, b") == by_comma(["a,b"]) == by_comma(["a", "b"]) == ("a", "b")


def test_the_options_of_a_recipe_have_a_name_of_their_own():
    (given,) = (one for one in options_of(TrainConfig) if one.name == "set")
    assert (given.field, given.flag, given.type) == ("options", "--set", dict)
