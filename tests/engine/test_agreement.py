"""Workers with different options, parts or models are refused by all of them, before anything is trained."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch
from graphs import community_graph, cut
from torch import nn

import isthmus
from isthmus.comm import Hub
from isthmus.engine import PredictConfig, TrainConfig, train
from isthmus.engine.agreement import check_weights, compare_facts
from isthmus.errors import InputError
from isthmus.files import sealed
from isthmus.launch.job import Job, run
from isthmus.nn import ModelConfig
from isthmus.partition import Book

SMALL = TrainConfig(model=ModelConfig(hidden=8), steps=2, eval_every=2)


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    return cut(community_graph(), 4, "random", tmp_path_factory.mktemp("parts"))


def complaints(workers: int, work) -> set[str]:
    """What every worker says; each must refuse."""

    def one(transport):
        with pytest.raises(InputError) as caught:
            work(transport)
        return str(caught.value)

    return set(Hub(workers, timeout=30).run(one))


@pytest.mark.parametrize("workers", [2, 3, 4])
@pytest.mark.parametrize("kind", ["train", "verify"])
def test_one_worker_with_another_option(book, workers, kind):
    def work(transport):
        config = replace(SMALL, lr=0.5) if transport.rank == workers - 1 else SMALL
        run(Job(kind, str(book.folder), config, quiet=True), transport)

    (said,) = complaints(workers, work)
    others = ", ".join(map(str, range(workers - 1)))
    assert f"lr is 0.01 on worker {others} and 0.5 on worker {workers - 1}: start every worker with the same" in said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 1}, "seed is 0 on worker 0 and 1 on worker 1"),
        ({"model": ModelConfig(hidden=16)}, "model.hidden is 8 on worker 0 and 16 on worker 1"),
        ({"recipe": "pipegcn", "options": {"staleness": 1}}, "recipe is exact on worker 0 and pipegcn on worker 1"),
        ({"dtype": "float64"}, "dtype is float32 on worker 0 and float64 on worker 1"),
        ({"steps": 3, "eval_every": 3}, "steps is 2 on worker 0 and 3 on worker 1; eval_every is 2 on"),
        ({"options": {"bits": 8}}, "options.bits is not there on worker 0 and 8 on worker 1"),
    ],
)
def test_every_option_that_a_result_depends_on(book, change, words):
    def work(transport):
        config = replace(SMALL, **change) if transport.rank else SMALL
        run(Job("train", str(book.folder), config, quiet=True), transport)

    assert words in complaints(2, work).pop()


def test_commands_and_resuming(book):
    def work(transport, **mine):
        job = Job("train", str(book.folder), SMALL, quiet=True)
        run(replace(job, **mine) if transport.rank else job, transport)

    assert "resume is False on worker 0 and True on" in complaints(2, lambda one: work(one, resume=True)).pop()
    assert "command is train on worker 0 and verify on" in complaints(2, lambda one: work(one, kind="verify")).pop()


def test_predictions(book, tmp_path):
    """Of something else, or by the weights of an old copy of the run."""
    runs = [str(tmp_path / name) for name in ("a", "b")]
    for steps, folder in zip((2, 4), runs, strict=True):
        job = Job("train", str(book.folder), replace(SMALL, steps=steps), folder, quiet=True)
        Hub(2).run(lambda transport, job=job: run(job, transport))

    def work(transport, *asked):
        prediction = PredictConfig(*asked[transport.rank])
        run(Job("predict", str(book.folder), SMALL, prediction=prediction), transport)

    out = str(tmp_path / "nodes.npy")
    other = [(runs[0], out, ("class",)), (runs[0], out, ("score",))]
    assert "what is ['class'] on worker 0 and ['score'] on" in complaints(2, lambda one: work(one, *other)).pop()
    stale = [(runs[0], out), (runs[1], out)]
    assert "float32" in complaints(2, lambda one: work(one, *stale)).pop()
    assert not list(tmp_path.glob("nodes*"))


def test_an_old_copy_of_the_parts(book, tmp_path):
    """The same sizes and another content; and another cut, whose transfers would have other shapes."""
    same = community_graph()
    stale = cut(replace(same, x=same.x + 1), 4, "random", tmp_path)
    other = cut(same, 3, "metis", tmp_path)

    def work(transport, mine):
        run(Job("train", str((mine if transport.rank else book).folder), SMALL, quiet=True), transport)

    (said,) = complaints(3, lambda transport: work(transport, stale))
    assert f"fingerprint is {book.fingerprint} on worker 0 and {stale.fingerprint} on worker 1, 2" in said
    assert said.endswith("copy the same parts folder to every machine")
    assert "num_parts is 4 on worker 0 and 3 on worker 1" in complaints(2, lambda one: work(one, other)).pop()


def test_a_book_that_counts_otherwise(book, tmp_path):
    """The files are the same, so their fingerprint is; what the book says of them is not."""
    copy = shutil.copytree(book.folder, tmp_path / "copy")
    said = json.loads((copy / "book.json").read_text())
    said["train"] = [count + 1 for count in said["train"]]
    said.pop("sha256")
    (copy / "book.json").write_text(json.dumps(sealed(said)))
    folders = [book.folder, copy]

    def work(transport):
        run(Job("train", str(folders[transport.rank]), SMALL, quiet=True), transport)

    assert "book.json is" in complaints(2, work).pop()


def test_versions_come_first():
    def work(transport):
        facts = {"versions": {"torch": f"2.{transport.rank}"}, "options": {"lr": transport.rank}}
        compare_facts(transport, facts)

    (said,) = complaints(2, work)
    assert said == (
        "the workers do not agree: torch is 2.0 on worker 0 and 2.1 on worker 1: "
        "install the same versions on every machine"
    )


def test_many_differences_are_counted():
    def work(transport):
        compare_facts(transport, {"options": dict.fromkeys("abcde", transport.rank)})

    assert "c is 0 on worker 0 and 1 on worker 1 and 2 more: start" in complaints(2, work).pop()


def test_models_that_are_not_the_same(book):
    """As when one machine has another version of models.py."""

    def wider(transport):
        check_weights(transport, nn.Linear(3, 4 + transport.rank))

    assert "weight is [4, 3] float32" in complaints(2, wider).pop()

    def work(transport):
        torch.manual_seed(0)
        model = SMALL.model.build(book.features, book.classes, transport.rank, torch.float32)
        train(book, SMALL, transport, model=model)

    (said,) = complaints(2, work)
    assert "let every worker build the same model from the same code" in said


def test_workers_of_ones_own(book, tmp_path):
    def work(transport, source=book, **mine):
        with isthmus.Worker(source, transport=transport, **(mine if transport.rank else {})):
            pass

    assert "seed is 0 on worker 0 and 1 on worker 1" in complaints(2, lambda one: work(one, seed=1)).pop()
    sources = [book, community_graph()]
    said = complaints(2, lambda one: work(one, sources[one.rank])).pop()
    assert "the source is a parts folder on worker 0 and not yet cut on worker 1" in said


def test_those_that_agree_go_on(book):
    def work(transport):
        return run(Job("train", str(Book.read(book.folder).folder), SMALL, quiet=True), transport)["steps"]

    assert Hub(3).run(work) == [2, 2, 2]
