"""What goes wrong in Python is said in Python: keywords, not flags; commands keep their flags."""

from __future__ import annotations

import inspect
import re
import sys

import pytest
import torch
from graphs import community_graph, cut, npz

import isthmus
from isthmus import cli
from isthmus.errors import InputError, WorkerError
from isthmus.wording import in_python, known, speaks_python

SAID = {
    "add the reverses with --undirected, or keep them with --directed": (
        "add the reverses with undirected=True, or keep them with directed=True"
    ),
    "give another --out, or --resume to go on": "give another `out`, or resume=True to go on",
    "use --workers 3 or fewer, or partition again with --parts 4": (
        "use workers=3 or fewer, or partition again with parts=4"
    ),
    "use --method ldg, which streams": 'use method="ldg", which streams',
    "leave --rows-dtype out": "leave `rows_dtype` out",
    "eval-every must be at least 1, not 0": "eval_every must be at least 1, not 0",
    "say where with --parts DIR": "say where with parts=DIR",
    "`isthmus partition SOURCE --parts N --out DIR` makes one": "isthmus.partition(source, N, out=DIR) makes one",
    "go on by `isthmus train … --resume`": "go on by `isthmus train … --resume`",
    "give another MASTER_PORT (torchrun: --master-port)": "give another MASTER_PORT (torchrun: --master-port)",
}


@pytest.mark.parametrize("flags", SAID)
def test_words(flags):
    assert in_python(flags) == SAID[flags]
    assert in_python(SAID[flags]) == SAID[flags]


def test_every_option_of_a_function_is_known():
    functions = (isthmus.train, isthmus.predict, isthmus.partition.partition_source, isthmus.Worker, isthmus.load)
    names = {name for function in functions for name in inspect.signature(function).parameters}
    assert {name.replace("_", "-") for name in names - {"source", "run", "transport", "progress"}} <= set(known())
    assert known()["undirected"]
    assert not known()["out"]


def test_functions_and_workers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    book = cut(community_graph(directed=True), 2, "random", tmp_path)
    one_way = npz(tmp_path / "one-way.npz", edge_index=torch.tensor([[0, 1], [1, 2]]).numpy())
    calls = [
        (lambda: isthmus.load(one_way), "undirected=True"),
        (lambda: isthmus.partition(one_way, 2, "out"), "undirected=True"),
        (lambda: isthmus.train(one_way, workers=1), "undirected=True"),
        (lambda: isthmus.train(book, workers=5), "workers=2"),
        (lambda: isthmus.Worker(one_way), "undirected=True"),
        (lambda: isthmus.predict(tmp_path, "x.txt"), "let `out` end in .npy"),
        (lambda: isthmus.train(tmp_path / "nothing"), "isthmus.partition(source, N, out=DIR)"),
    ]
    for call, words in calls:
        with pytest.raises(InputError) as refusal:
            call()
        assert words in str(refusal.value)
        assert not re.search(r"--[a-z]", str(refusal.value))


def test_the_command_keeps_its_flags(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    one_way = npz(tmp_path / "one-way.npz", edge_index=torch.tensor([[0, 1], [1, 2]]).numpy())
    isthmus.train  # noqa: B018 (both live in one process)
    for command in (["train"], ["partition", "--parts", "2", "--out", "parts"]):
        monkeypatch.setattr(sys, "argv", ["isthmus", *command, str(one_way)])
        with pytest.raises(SystemExit):
            cli.main()
        assert "--undirected" in capsys.readouterr().err


def test_workers_that_are_late():
    @speaks_python
    def wait():
        raise WorkerError("raise --timeout if it is only slow")

    with pytest.raises(WorkerError, match="raise `timeout` if"):
        wait()
