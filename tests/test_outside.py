"""Recipes, samplers and methods of cutting from outside, as package.module:NAME; and only those that the user names."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from graphs import community_graph, cut
from runs import as_threads
from typer.testing import CliRunner

import isthmus
from isthmus.cli import app
from isthmus.errors import InputError
from isthmus.files import sealed
from isthmus.launch import local
from isthmus.recipes import find
from isthmus.recipes.parse import read_entries

MINE = Path(__file__).parents[1] / "CONTRIBUTING.md"
FOREIGN = "from pathlib import Path\nPath('IMPORTED').touch()\n"
MORE = """
from isthmus.partition.vertex import VertexMethod


def _by_source(graph, parts, options, report):
    return (graph.indices % parts).astype(np.int16)


SORT = VertexMethod(_by_source, "an edge goes where its source says")
NOTHING = 3


class Empty:
    pass
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the module ``mine``, made of CONTRIBUTING.md; the workers of commands are threads."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(local, "start", as_threads)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    shown = [MINE.read_text().split(f"### A {title}\n")[1] for title in ("recipe", "sampler", "partitioner")]
    code = "\n".join(text.split("```python\n")[1].split("```")[0] for text in shown)
    Path("mine.py").write_text(code + MORE)
    yield tmp_path
    sys.modules.pop("mine", None)
    sys.modules.pop("foreign", None)


QUICK = {"hidden": 8, "steps": 4, "eval_every": 2, "quiet": True, "dtype": "float64"}


def losses(result) -> list[float]:
    return [line["loss"] for line in result.metrics]


@pytest.mark.usefixtures("here")
def test_a_recipe(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    exact = isthmus.train(book, **QUICK)
    lazy = isthmus.train(book, recipe="mine:LAZY", set={"bound": 0, "bits": 32}, **QUICK)
    assert losses(lazy) == pytest.approx(losses(exact), rel=1e-10)
    assert losses(isthmus.train(book, recipe="mine:LAZY", **QUICK)) != losses(exact)
    assert json.loads((lazy.run / "config.json").read_text())["recipe"] == "mine:LAZY"
    assert "gradients every bound + 1 steps" in CliRunner().invoke(app, ["recipes", "mine:LAZY"]).output
    (entry,) = read_entries("mine:LAZY bound=2")
    assert (entry.recipe, entry.options["bound"], entry.folder) == ("mine:LAZY", 2, "mine-LAZY-bound=2")


@pytest.mark.usefixtures("here")
def test_a_sampler(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    whole, half = (isthmus.train(book, set=given, **QUICK) for given in ({}, {"sampler": "mine:Alternate"}))
    assert half.summary["rows"]["sent"] < half.summary["rows"]["halo"] * 2  # two sites, every second row
    assert losses(half) != losses(whole)
    isthmus.train(book, recipe="isthmus", set={"sampler": "mine:Alternate"}, **QUICK)


@pytest.mark.usefixtures("here")
def test_a_partitioner():
    book = isthmus.partition(community_graph(), 3, out="parts", method="mine:DEAL", order="given", quiet=True)
    assert book.method == "mine:DEAL"
    assert [list(book.part(k).nodes[:2]) for k in range(3)] == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.usefixtures("here")
def test_a_method_that_places_edges():
    book = isthmus.partition(community_graph(), 3, out="parts", method="mine:SORT", cut="vertex", quiet=True)
    assert (book.method, book.cut) == ("mine:SORT", "vertex")
    with pytest.raises(InputError, match="SORT is a VertexMethod: make it a Method, or give another"):
        isthmus.partition(community_graph(), 3, out="other", method="mine:SORT", quiet=True)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: find("mine:NOTHING"), r"mine:NOTHING is no recipe but a int: make it an isthmus\.recipes\.Recipe"),
        (lambda: find("mine:ABSENT"), "there is no such recipe as mine:ABSENT"),
        (lambda: find("absent:LAZY"), "cannot import the recipe absent:LAZY"),
        (lambda: find("mine.py:LAZY"), "name its module, as in mine:LAZY"),
        (lambda: find("lazy"), r"or your own as package\.module:NAME"),
        (lambda: find("exact").policy({"sampler": "mine:Empty"}), "makes no sampler: it lacks draw, inclusion"),
        (lambda: find("exact").policy({"sampler": "mine:NOTHING"}), "no class or function"),
        (lambda: find("exact").policy({"sampler": "mine:Alternate", "rate": 0.5}), "takes no rate"),
        (lambda: find("exact").policy({"sampler": "mine"}), r"or package\.module:NAME, not 'mine'"),
        (lambda: find("psc-gcn").policy({"sampler": "mine:Alternate"}), "one of independent, coupled, not"),
        (
            lambda: isthmus.partition(community_graph(), 2, out="p", method="mine:NOTHING", quiet=True),
            "mine:NOTHING is a int: make it a Method, or give another `cut`",
        ),
    ],
)
def test_refusals(call, words):
    with pytest.raises(InputError, match=words):
        call()


def renamed(run: Path, **changes) -> Path:
    """A run folder in which somebody else has written other names."""
    config = json.loads((run / "config.json").read_text())
    config["options"] |= changes.pop("options", {})
    (run / "config.json").write_text(json.dumps({**config, **changes}))
    return run


@pytest.mark.parametrize("changes", [{"recipe": "foreign:RECIPE"}, {"options": {"sampler": "foreign:Sampler"}}])
def test_code_that_only_a_run_folder_names_is_not_imported(here, changes):
    book = cut(community_graph(), 1, "random", here)
    run = renamed(isthmus.train(book, **QUICK).run, **changes)
    Path("foreign.py").write_text(FOREIGN)
    typed = "--recipe foreign:RECIPE" if "recipe" in changes else "--set sampler=foreign:Sampler"
    refused = CliRunner().invoke(app, ["train", "--resume", str(run), "--steps", "9"]).exception
    assert isinstance(refused, InputError)
    assert str(refused).endswith(f"to run that, add {typed}")
    assert isthmus.predict(run, "nodes.npy", what="class")["rows"] == 120
    isthmus.partition.Book.read(book.folder)
    assert not Path("IMPORTED").exists()


def test_a_book_that_names_a_method_imports_nothing(here):
    folder = cut(community_graph(), 2, "random", here).folder
    Path("foreign.py").write_text(FOREIGN)
    book = json.loads((folder / "book.json").read_text())
    del book["sha256"]
    (folder / "book.json").write_text(json.dumps(sealed({**book, "method": "foreign:METHOD"})))
    assert CliRunner().invoke(app, ["inspect", str(folder)]).exit_code == 0
    isthmus.train(folder, **QUICK)
    assert not Path("IMPORTED").exists()


def test_a_run_goes_on_with_code_that_is_named_again(here):
    book = cut(community_graph(), 2, "random", here)
    asked = {**QUICK, "set": {"sampler": "mine:Alternate", "bits": 8}}
    straight = isthmus.train(book, **{**asked, "steps": 8})
    run = isthmus.train(book, **asked, out="run").run
    shutil.copytree(run, "copy")
    with pytest.raises(InputError, match="to run that, add"):
        isthmus.train("copy", resume=True, steps=8)
    again = isthmus.train("copy", resume=True, steps=8, set={"sampler": "mine:Alternate"}, quiet=True)
    assert losses(again) == losses(straight)
    assert again.summary["options"]["bits"] == 8


def test_a_script_that_is_imported_for_its_model_may_not_train_again(tmp_path, monkeypatch):
    """Workers import the file of a model: a call of isthmus.train in it would start others, and so on."""
    cut(community_graph(), 2, "random", tmp_path).folder.rename(tmp_path / "parts")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "endless.py").write_text("import isthmus\nisthmus.train('parts', model='endless:Net')\n")
    with pytest.raises(InputError, match="endless is imported for endless:Net, and starts workers itself: put that"):
        isthmus.train("parts", model="endless:Net")
