"""The commands shown in the documentation: all are spelt right, and all are run, here or by the test that is named."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from docs.pages import PAGES, ROOT, name_of
from graphs import community_graph, npz, tables
from report.folders import run_folder
from runs import as_threads
from typer.testing import CliRunner

from isthmus.cli import app
from isthmus.launch import local
from isthmus.partition import partition
from isthmus.recipes import find
from isthmus.recipes.parse import read_entries, read_options

COMMANDS = typer.main.get_command(app).commands

# Commands that need other processes, machines, root or an extra: the page, what the line begins with, who runs it.
ELSEWHERE = [
    ("README.md", "torchrun", "launch/test_machines.py::test_torchrun_on_two_machines"),
    ("README.md", "isthmus plan", "experiments/test_plan.py::test_commands_of_the_docs"),
    ("plan.md", "isthmus plan", "experiments/test_plan.py::test_commands_of_the_docs"),
    ("python.md", "isthmus train parts --model", "test_docs.py::test_from_python"),
    ("trouble.md", "torchrun", "diagnose/test_doctor.py::test_under_torchrun"),
    ("machines.md", "torchrun", "launch/test_machines.py::test_torchrun_on_two_machines"),
    ("machines.md", "srun", "launch/test_machines.py::test_a_batch_script_of_slurm"),
    ("machines.md", "isthmus train parts --workers 2 --launcher", "launch/test_ray.py::test_the_same_bits_as_on_this"),
    ("compare.md", "sudo isthmus compare", "experiments/test_compare.py::test_over_links"),
    ("compare.md", "sudo isthmus testbed --hosts 4", "launch/test_over_links.py::test_torchrun_like_places_on_every"),
    ("compare.md", "sudo isthmus testbed --hosts 2", "testbed/test_testbed.py::test_the_command_stays_until_it_is"),
    ("compare.md", "sudo isthmus testbed --sweep", "testbed/test_testbed.py::test_the_next_sweeps_up_after_a"),
]
# The rest is run as it stands, but for these words, and with these options after its own.
SMALLER = {"synthetic:flickr@0.1": "synthetic:flickr@0.01", "pyg:Cora": "mine.npz", "cuda": "cpu"}
FEWER = {"train": ["--steps", "20"], "compare": ["--steps", "4", "--seeds", "1"]}
MORE = ["--steps", "30"]  # of a run that goes on
PROCESSES = "README.md", "isthmus train synthetic"  # that page, that line; elsewhere workers are threads
MANY = 100  # steps
# What a page takes as there already, unless an earlier command of it has made it.
GIVEN = {
    "mine.npz": npz,
    "bare.npz": lambda path: without_features(npz(path)),
    "graphs": lambda path: (path.mkdir(), npz(path / "one.npz"), npz(path / "two.npz")),
    "mine": lambda path: tables(path, [f"node-{k}" for k in range(120)]),
    "parts": lambda path: partition(community_graph(), 2, out=path),
    "run": lambda path: (make("parts"), trouble("train", "parts", "--steps", "4", "--out", str(path))),
    "ids.txt": lambda path: path.write_text("7\n119\n7\n"),
    **{f"runs/{k}": run_folder for k in (1, 2, 3)},
}
EXTRAS = {"--tensorboard": "tensorboard", "nodes.parquet": "pyarrow"}


def without_features(path: Path) -> None:
    with np.load(path) as graph:
        np.savez(path, **{name: graph[name] for name in graph.files if name != "x"})


def lines(page: Path) -> Iterator[str]:
    """The lines of a page's shell blocks with an isthmus command; those with … or [ are patterns, not commands."""
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL):
        for line in block.splitlines():
            if re.search(r"(^|\s)isthmus ", line) and not re.search(r"…|\[", line.split("#")[0]):
                yield line


def arguments(line: str) -> list[str]:
    return shlex.split(re.search(r"(?:^|\s)isthmus (.*)", line)[1], comments=True)


def elsewhere(page: Path, line: str) -> str:
    """The test that runs a line, "" if it is run here."""
    return next((test for name, begin, test in ELSEWHERE if page.name == name and line.startswith(begin)), "")


RUN_HERE = [page for page in PAGES if not all(elsewhere(page, line) for line in lines(page))]


def trouble(name: str, *words: str) -> str:
    """What went wrong when the command was run; "" for nothing."""
    done = CliRunner().invoke(app, [name, *words])
    return "" if done.exit_code == 0 else f"isthmus {shlex.join([name, *words])}: {done.exception or done.output}"


def smaller(name: str, *words: str) -> list[str]:
    """The same command in less time; of an option that is given twice, the second counts."""
    steps = int(words[words.index("--steps") + 1]) if "--steps" in words else MANY
    fewer = MORE if "--resume" in words else FEWER.get(name, [])
    many = steps >= MANY and "--epochs" not in words
    return [name, *(SMALLER.get(word, word) for word in words), *(fewer if many else [])]


def make(name: str) -> None:
    if not Path(name).exists():
        GIVEN[name](Path(name))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_are_spelt_right(page):
    for name, *words in map(arguments, lines(page)):
        assert name in COMMANDS
        asked = COMMANDS[name].make_context(name, words).params
        if name == "train":
            find(asked["recipe"]).policy(find(asked["recipe"]).settings(read_options(asked["set"] or [])))
        if name == "compare":
            read_entries(asked["recipes"])


@pytest.mark.parametrize("page", RUN_HERE, ids=name_of)
def test_commands_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)  # here it is the tests' own
    for line in (line for line in lines(page) if not elsewhere(page, line)):
        words = smaller(*arguments(line))
        with monkeypatch.context() as patch:
            if not (page.name == PROCESSES[0] and line.startswith(PROCESSES[1])):
                patch.setattr(local, "start", as_threads)
            for before, word in pairwise(words):
                if word in EXTRAS:
                    pytest.importorskip(EXTRAS[word])
                if word in GIVEN and before != "--out":
                    make(word)
            assert trouble(*words) == ""


@pytest.mark.parametrize(("page", "begin", "test"), ELSEWHERE, ids=[f"{page}: {begin}" for page, begin, _ in ELSEWHERE])
def test_who_runs_the_others(page, begin, test):
    """The page has such a line, and that test is there."""
    (path,) = (one for one in PAGES if one.name == page)
    assert any(line.startswith(begin) for line in lines(path))
    file, name = test.split("::")
    assert f"def {name}" in (ROOT / "tests" / file).read_text()
