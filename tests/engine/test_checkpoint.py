"""A resumed run is the run that was never interrupted, bit for bit."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import replace

import pytest
import torch
from graphs import community_graph, cut, with_few
from oracle.links import Links
from safetensors.torch import load_file

from isthmus.comm import Hub
from isthmus.engine import TrainConfig, checkpoint, train
from isthmus.errors import InputError
from isthmus.nn import ModelConfig
from isthmus.recipes import find

ASKED = TrainConfig(
    model=ModelConfig(model="sage", hidden=8, layers=2, dropout=0.5), steps=12, eval_every=2, seed=5, weight_decay=1e-3
)


def run(book, config, out, resume=False, stop_after=None, notes=None):
    """A run on workers that are threads; `stop_after` breaks it off in the middle of a step's record."""
    policy = find(config.recipe).policy(config.options)

    def work(transport):
        def watch(line):
            if line["step"] == stop_after:
                raise InterruptedError

        note = None if notes is None else notes.append
        return train(book, config, transport, policy=policy, out=out, resume=resume, watch=watch, note=note)

    return Hub(book.num_parts).run(work)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("workers", [1, 3])
def test_resume_gives_the_same_bits(tmp_path, optimizer, workers):
    book = cut(community_graph(), workers, "random", tmp_path)
    asked = replace(ASKED, optimizer=optimizer)
    whole = run(book, asked, tmp_path / "whole")[0]
    with pytest.raises(InterruptedError):
        run(book, asked, tmp_path / "broken", stop_after=7)
    resumed = run(book, asked, tmp_path / "broken", resume=True)[0]
    one, other = (load_file(tmp_path / name / "checkpoints/step-12/model.safetensors") for name in ("whole", "broken"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert resumed.summary["test"] == whole.summary["test"]
    assert resumed.summary["best_step"] == whole.summary["best_step"]
    lines = [json.loads(line) for line in (tmp_path / "broken/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 13))
    straight = [json.loads(line) for line in (tmp_path / "whole/metrics.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines] == [line["loss"] for line in straight]


@pytest.mark.parametrize("recipe", ["exact", "bns", "pipegcn", "psc-gcn", "isthmus"])
def test_resume_where_few_rows_are_read(tmp_path, recipe):
    """The layers before the last make other rows at each step."""
    graph = with_few(community_graph(240, degree=4.0))
    book, asked = cut(graph, 3, "metis", tmp_path), replace(ASKED, recipe=recipe)
    run(book, asked, tmp_path / "whole")
    with pytest.raises(InterruptedError):
        run(book, asked, tmp_path / "broken", stop_after=7)
    run(book, asked, tmp_path / "broken", resume=True)
    one, other = (load_file(tmp_path / name / "checkpoints/step-12/model.safetensors") for name in ("whole", "broken"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_that_fails_leaves_no_thread(tmp_path):
    """Also while somebody holds its exception, and with it all that the run had."""
    book = cut(community_graph(), 3, "random", tmp_path)
    with pytest.raises(InterruptedError) as held:
        run(book, replace(ASKED, recipe="psc-gcn"), tmp_path / "run", stop_after=3)
    assert held.value.__traceback__ is not None
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("draw")]


def flip(file):
    """One bit in the middle of a file: its length, and the header of a safetensors file, stay as they were."""
    content = bytearray(file.read_bytes())
    content[len(content) * 3 // 4] ^= 1
    file.write_bytes(content)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


DAMAGE = {
    "a bit of the weights": lambda folder: flip(folder / "model.safetensors"),
    "a bit of the optimizer": lambda folder: flip(folder / "optimizer.safetensors"),
    "a bit of a worker's channels": lambda folder: flip(folder / "worker-1.safetensors"),
    "a worker's channels are gone": lambda folder: (folder / "worker-2.safetensors").unlink(),
    "the counters are cut short": lambda folder: (folder / "state.json").write_text('{"progress": {"step"'),
    "the checksums are gone": lambda folder: (folder / "checksums.json").unlink(),
    "nothing is left": lambda folder: [file.unlink() for file in folder.iterdir()],
}


@pytest.fixture(scope="module")
def piped(tmp_path_factory):
    """Parts; what was asked of pipegcn; a run of 8 steps, and one of 12."""
    folder, asked = tmp_path_factory.mktemp("piped"), replace(ASKED, recipe="pipegcn")
    book = cut(community_graph(), 3, "random", folder)
    run(book, replace(asked, steps=8), folder / "broken")
    run(book, asked, folder / "whole")
    return book, asked, folder


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_checkpoint_is_passed_over(tmp_path, piped, damage):
    """The one before it is used, which is said; the run ends with the same bits."""
    (book, asked, folder), notes = piped, []
    shutil.copytree(folder / "broken", tmp_path / "run")
    DAMAGE[damage](tmp_path / "run/checkpoints/step-8")
    run(book, asked, tmp_path / "run", resume=True, notes=notes)
    assert len(notes) == 1
    assert "step-8 is damaged" in notes[0]
    one, other = (
        load_file(run / "checkpoints/step-12/model.safetensors") for run in (tmp_path / "run", folder / "whole")
    )
    assert all(torch.equal(one[name], other[name]) for name in one)
    lines = [json.loads(line)["step"] for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert lines == list(range(1, 13))


def test_all_checkpoints_damaged(tmp_path):
    book, notes = cut(community_graph(), 2, "random", tmp_path), []
    run(book, replace(ASKED, steps=8), tmp_path / "run")
    for folder in (tmp_path / "run/checkpoints").iterdir():
        flip(folder / "best.safetensors")
    before = contents(tmp_path / "run")
    with pytest.raises(InputError, match=r"every checkpoint of .* is damaged .*: start again with another --out"):
        run(book, ASKED, tmp_path / "run", resume=True, notes=notes)
    assert len(notes) == 3
    assert contents(tmp_path / "run") == before
    with pytest.raises(InputError, match="step-8 is damaged"):
        checkpoint.read_best(tmp_path / "run")


def test_what_killed_runs_leave(tmp_path):
    """A checkpoint half-written, one half-deleted, a line cut short: none of it is taken for whole, or stays."""
    book = cut(community_graph(), 2, "random", tmp_path)
    run(book, replace(ASKED, steps=8), tmp_path / "run")
    folder = tmp_path / "run/checkpoints"
    (folder / ".step-10").mkdir()
    (folder / ".step-10" / "worker-7.safetensors").write_bytes(b"half")
    (folder / "step-6" / "state.json").unlink()
    with (tmp_path / "run/metrics.jsonl").open("a") as file:
        file.write('{"step": 9, "lo')
    run(book, ASKED, tmp_path / "run", resume=True)
    assert sorted(path.name for path in folder.iterdir()) == ["step-0", "step-10", "step-12"]
    lines = [json.loads(line)["step"] for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert lines == list(range(1, 13))


def test_fewer_workers_leave_no_lines_of_the_future(tmp_path):
    book = cut(community_graph(), 3, "random", tmp_path)
    with pytest.raises(InterruptedError):
        run(book, ASKED, tmp_path / "run", stop_after=7)
    Hub(2).run(lambda transport: train(book, ASKED, transport, out=tmp_path / "run", resume=True))
    logs = {}
    for worker in range(3):
        lines = (tmp_path / f"run/worker-{worker}.jsonl").read_text().splitlines()
        logs[worker] = [json.loads(line)["step"] for line in lines]
    assert logs == {0: list(range(1, 13)), 1: list(range(1, 13)), 2: list(range(1, 7))}


def test_longer_run_goes_on_from_a_shorter(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    run(book, replace(ASKED, steps=6), tmp_path / "a")
    run(book, ASKED, tmp_path / "a", resume=True)
    run(book, ASKED, tmp_path / "b")
    one, other = (load_file(tmp_path / name / "checkpoints/step-12/model.safetensors") for name in "ab")
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_run_folder(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    summary = run(book, ASKED, tmp_path / "run")[0].summary
    folder = tmp_path / "run"
    assert json.loads((folder / "summary.json").read_text()) == summary
    assert json.loads((folder / "config.json").read_text())["model"]["hidden"] == 8
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["step-0", "step-10", "step-12"]
    needed = {"recipe", "options", "workers", "steps", "seed", "graph", "best_val", "test", "step_seconds", "seconds"}
    needed |= {"bytes_per_step", "rows", "staleness", "memory_peak_bytes"}
    assert needed <= summary.keys()
    assert set(summary["seconds"]) == {"compute", "wait", "sample", "reduce", "eval", "total"}
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all({"step", "loss"} <= line.keys() for line in lines)
    assert [line["step"] for line in lines if "val" in line] == [2, 4, 6, 8, 10, 12]
    best = max((line for line in lines if "val" in line), key=lambda line: line["val"])
    assert (summary["best_val"], summary["best_step"]) == (best["val"], best["step"])
    assert summary["test"]["score"] == best["test"]


def test_bytes_are_what_the_cut_says(tmp_path):
    """Layer 0 is aggregated once; layer 1 narrows from 8 to 4 and sends 4 floats per row next to a training node."""
    graph = community_graph()
    book = cut(graph, 3, "random", tmp_path)
    links, halo = Links(graph, book), sum(part.halo for part in book.parts)
    near = sum(len(links.near(*link)) for link in links.rows)
    summary = run(book, replace(ASKED, steps=4, cut="edge"), None)[0].summary
    covered = run(book, replace(ASKED, steps=4), None)[0].summary["bytes_per_step"]
    sent, once = summary["bytes_per_step"], halo * 10 * 4 / 4
    assert sent["embeddings"] == sent["gradients"] == near * 4 * 4
    assert 0 < covered["embeddings"] == covered["gradients"] < sent["embeddings"]
    assert 0 < near < halo
    assert sent["features"] == round(once)
    assert summary["rows"]["halo"] == halo


def test_early_stop(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    summary = run(book, replace(ASKED, steps=500, patience=3), None)[0].summary
    assert summary["steps"] < 500
    assert summary["steps"] == summary["best_step"] + 3 * ASKED.eval_every


def test_lost_before_its_summary(tmp_path):
    """A run that has done all its steps, or lost its patience, is brought to its end; one that has ended is left."""
    book = cut(community_graph(), 2, "random", tmp_path)
    for name, config in (("all", ASKED), ("patience", replace(ASKED, steps=500, patience=3))):
        out = tmp_path / name
        told = run(book, config, out)[0].summary
        with pytest.raises(InputError, match=r"give more --(steps|patience) to go on"):
            run(book, config, out, resume=True)
        (out / "summary.json").unlink()
        (out / "checkpoints/step-2.bak").mkdir()  # somebody's own
        again = run(book, config, out, resume=True)[0].summary
        assert [again[key] for key in ("steps", "best_step", "test")] == [
            told[key] for key in ("steps", "best_step", "test")
        ]
        assert (out / "summary.json").exists()


def test_best_weights_are_returned(tmp_path):
    book = cut(community_graph(), 1, "random", tmp_path)
    result = run(book, replace(ASKED, steps=40, lr=0.3), tmp_path / "run")[0]
    assert result.summary["best_step"] < 40
    best = load_file(tmp_path / "run/checkpoints/step-40/best.safetensors")
    assert all(torch.equal(best[name], tensor) for name, tensor in result.model.state_dict().items())


def test_what_cannot_be_resumed(tmp_path):
    book = cut(community_graph(), 1, "random", tmp_path)
    run(book, ASKED, tmp_path / "run")
    with pytest.raises(InputError, match=r"holds an earlier run.*--resume"):
        run(book, ASKED, tmp_path / "run")
    with pytest.raises(
        InputError, match=r"started with other options: lr was 0.01 and is 0.5 now: resume with the same"
    ):
        run(book, replace(ASKED, lr=0.5), tmp_path / "run", resume=True)
    with pytest.raises(InputError, match=r"already done 12 steps: give more --steps"):
        run(book, ASKED, tmp_path / "run", resume=True)
    (tmp_path / "run/summary.json").unlink()  # as if it had been stopped there
    before = (tmp_path / "run/config.json").read_text()
    with pytest.raises(InputError, match=r"already done 12 steps: give more --steps"):
        run(book, replace(ASKED, steps=5), tmp_path / "run", resume=True)
    assert (tmp_path / "run/config.json").read_text() == before
    wider = replace(ASKED, model=replace(ASKED.model, hidden=16))
    with pytest.raises(InputError, match=r"started with other options: model.hidden was 8 and is 16 now: "):
        run(book, wider, tmp_path / "run", resume=True)
    with pytest.raises(InputError, match=r"started with other options: recipe was exact and is bns now: "):
        run(book, replace(ASKED, recipe="bns", options={"rate": 0.5}), tmp_path / "run", resume=True)
    other = cut(community_graph(seed=9), 1, "random", tmp_path / "other")
    with pytest.raises(InputError, match=r"started with other options: parts was \w+ and is \w+ now"):
        run(other, replace(ASKED, steps=14), tmp_path / "run", resume=True)
    with pytest.raises(InputError, match="no checkpoint to resume"):
        run(book, ASKED, tmp_path / "nothing", resume=True)


def test_wrong_number_of_workers(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    with pytest.raises(InputError, match="has 2 parts but 3 workers: use --workers 2 or fewer"):
        Hub(3).run(lambda transport: train(book, ASKED, transport))
    with pytest.raises(InputError, match="split 4 does not exist"):
        run(book, replace(ASKED, split=4), None)
