"""The command line as a person meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from graphs import community_graph, cut, npz
from processes import alive, free_port, reached, started, until, workers_of
from safetensors.torch import load_file

from isthmus import cli

QUICK = ("--hidden", "8", "--steps", "6", "--eval-every", "2", "--quiet")


@pytest.fixture
def isthmus(monkeypatch, capsys, tmp_path):
    """Runs a command in an empty folder; gives (exit status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["isthmus", *arguments])
        threads = torch.get_num_threads()
        try:
            cli.main()
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        finally:
            torch.set_num_threads(threads)
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def test_from_a_file_to_a_trained_model(isthmus, workers_are_threads, tmp_path):
    source = npz(tmp_path / "mine.npz")
    status, said, progress = isthmus("partition", str(source), "--parts", "2", "--out", "parts", "--quiet")
    assert status == 0
    assert "cut" in said
    assert progress == ""
    status, said, _ = isthmus("inspect", "parts", "--checksums", "--json")
    assert status == 0
    assert json.loads(said.splitlines()[-1])
    status, said, _ = isthmus("train", "parts", *QUICK, "--out", "run", "--json")
    assert status == 0
    summary = json.loads(said.splitlines()[-1])
    assert summary == json.loads(Path("run/summary.json").read_text())
    assert summary["workers"] == 2
    assert summary["bytes_per_step"]["embeddings"] > 0
    status, said, _ = isthmus("verify", "parts", "--json")
    assert status == 0
    result = json.loads(said.splitlines()[-1])
    assert result["equal"]
    assert max(result["largest_difference"].values()) < 1e-10


def test_uncut_source_and_default_folder(isthmus, tmp_path):
    source = npz(tmp_path / "mine.npz")
    for number in (1, 2):
        status, said, _ = isthmus("train", str(source), "--workers", "1", *QUICK)
        assert status == 0
        assert f"runs/{number}" in said
    assert Path("runs/1/parts/book.json").exists()


def test_processes_agree_with_one(isthmus, tmp_path):
    """The same run on one process and on three, over real sockets."""
    graph, losses = community_graph(), {}
    for workers in (1, 3):
        book = cut(graph, workers, "random", tmp_path)
        out = f"run-{workers}"
        options = ("--dtype", "float64", "--model", "sage", *QUICK, "--out", out)
        assert isthmus("train", str(book.folder), *options)[0] == 0
        losses[workers] = [json.loads(line)["loss"] for line in Path(out, "metrics.jsonl").read_text().splitlines()]
    assert np.abs(np.subtract(losses[1], losses[3])).max() < 1e-10


BAD = {
    "ids out of range": ({"edge_index": np.array([[0, 500], [500, 0]])}, "500"),
    "one direction only": ({"edge_index": np.array([[0, 1], [1, 2]])}, "--undirected"),
    "not a number": ({"x": np.full((120, 10), np.nan, np.float32)}, "row"),
    "shapes disagree": ({"y": np.zeros(7, int)}, "y"),
    "overlapping masks": ({"val_mask": np.ones(120, bool)}, "mask"),
    "no training node": ({"train_mask": np.zeros(120, bool)}, "train"),
    "unknown dtype": ({"x": np.full((120, 10), "a")}, "dtype"),
    "pickled": ({"x": np.array([None] * 120, dtype=object)}, "pickle"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_status_2(isthmus, tmp_path, case):
    changes, word = BAD[case]
    source = npz(tmp_path / "bad.npz", **changes)
    status, said, complaint = isthmus("train", str(source), "--workers", "2", *QUICK, "--out", "run")
    assert status == 2
    assert complaint.count("\n") == 1
    assert complaint.startswith("error: ")
    assert word in complaint
    assert said == ""
    assert not Path("run").exists()


def test_no_validation_nodes(isthmus, tmp_path):
    """Then the last weights are the result, and json has null where there is no score."""
    source = npz(tmp_path / "mine.npz", val_mask=np.zeros(120, bool))
    status, said, _ = isthmus("train", str(source), "--workers", "1", *QUICK, "--patience", "1", "--json")
    assert status == 0
    summary = json.loads(said.splitlines()[-1], parse_constant=pytest.fail)
    assert (summary["best_val"], summary["best_step"], summary["steps"]) == (None, 6, 6)
    assert "none: no such nodes" in isthmus("train", str(source), "--workers", "1", *QUICK)[1]


def test_truncated_file(isthmus, tmp_path):
    source = npz(tmp_path / "bad.npz")
    source.write_bytes(source.read_bytes()[:-3000])
    status, _, complaint = isthmus("partition", str(source), "--parts", "2", "--out", "parts")
    assert status == 2
    assert [line for line in complaint.splitlines() if "error" in line.lower()] == complaint.splitlines()[-1:]
    assert not Path("parts").exists()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--recipe", "magic"), "exact, vanilla"),
        (("--set", "share=0.1"), "no option 'share'"),
        (("--set", "rate"), "name=value"),
        (("--model", "mlp"), "gcn, sage, gat"),
        (("--dropout", "1.5"), "dropout"),
        (("--optimizer", "lion"), "adam, adamw, sgd"),
        (("--workers", "5"), "2 parts but 5 workers"),
        (("--workers", "0"), "at least 1"),
        (("--resume", "--out", "nothing"), "no run to resume"),
        (("--threads", "0"), "threads must be at least 1"),
        (("--method", "ldg"), "is already cut"),
        (("--timeout", "0"), "timeout must be above 0"),
        (("--out", "file/run"), "cannot write file/run"),
        (("--lr", "nan"), "lr must be above 0"),
        (("--model", "models.py:Net"), "name its module, as in models:Net"),
        (("--lr", "1e30"), "the loss became"),
    ],
)
def test_bad_options(isthmus, workers_are_threads, tmp_path, options, word):
    book = cut(community_graph(), 2, "random", tmp_path)
    Path("file").touch()
    status, _, complaint = isthmus("train", str(book.folder), *QUICK, *options)
    assert status == 2
    assert word in complaint
    assert len([line for line in complaint.splitlines() if not line.startswith("note: ")]) == 1


def test_missing_parts_folder(isthmus):
    """Whoever needs one says how to make it."""
    for command in ("inspect", "verify", "variance", "train", "plan", "compare"):
        more = ("--recipes", "exact") if command == "compare" else ()
        status, said, complaint = isthmus(command, "parts", *more)
        assert (status, said, complaint.count("\n")) == (2, "", 1), complaint
        assert "parts does not exist" in complaint
        assert "`isthmus partition SOURCE --parts N --out DIR` makes one" in complaint


def test_damaged_part_of_one_worker(isthmus, tmp_path):
    """Only worker 1 meets the damage; its message is the one that is shown."""
    book = cut(community_graph(), 2, "random", tmp_path)
    damaged = book.folder / "part-1" / "x.npy"
    content = bytearray(damaged.read_bytes())
    content[200] ^= 1
    damaged.write_bytes(content)
    for command in (("train", str(book.folder), *QUICK), ("verify", str(book.folder))):
        status, _, complaint = isthmus(*command)
        assert status == 2
        assert "part-1/x.npy is corrupt" in complaint


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc to find the workers")
def test_killed_worker_ends_the_run_and_resume_gives_the_same_bits(isthmus, tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    run = started(book.folder, tmp_path / "broken", "--eval-every", "5", "--steps", "100000", "--restarts", "0")
    until(lambda: reached(tmp_path / "broken", 10))
    workers = workers_of(run.pid)
    assert len(workers) == 2
    os.kill(workers[1], signal.SIGKILL)
    complaint = run.communicate(timeout=30)[1]
    assert run.returncode == 3
    assert "worker 1 was ended by SIGKILL; to go on from step" in complaint
    until(lambda: not alive(workers), 60)
    newest = max(int(path.name[5:]) for path in (tmp_path / "broken/checkpoints").glob("step-*"))
    steps = str(newest + 20)
    options = ("--hidden", "8", "--eval-every", "5", "--quiet", "--steps", steps)
    assert isthmus("train", str(book.folder), *options, "--out", "broken", "--resume")[0] == 0
    assert isthmus("train", str(book.folder), *options, "--out", "whole")[0] == 0
    one, other = (load_file(f"{name}/checkpoints/step-{steps}/model.safetensors") for name in ("broken", "whole"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc to find the workers")
def test_workers_end_with_their_starter(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    run = started(book.folder, tmp_path / "run", "--eval-every", "5", "--steps", "100000")
    until(lambda: reached(tmp_path / "run", 5))
    workers = workers_of(run.pid)
    assert len(workers) == 2
    run.kill()
    run.communicate(timeout=30)
    until(lambda: not alive(workers), 60)
    assert not alive(workers)


@pytest.mark.full  # in make test tests/api and tests/launch join by torchrun
def test_torchrun_joins(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "isthmus"]
    environ = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    arguments = ["train", str(book.folder), *QUICK, "--out", str(tmp_path / "run"), "--json"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120, env=environ)
    assert done.returncode == 0, done.stderr
    summaries = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [summary["workers"] for summary in summaries] == [2]


@pytest.mark.full
def test_torchrun_without_a_folder(tmp_path):
    """Worker 0 chooses one, and all write their share of its checkpoints."""
    book = cut(community_graph(), 2, "random", tmp_path)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "isthmus"]
    arguments = ["train", str(book.folder), *QUICK, "--recipe", "pipegcn", "--timeout", "60"]
    environ = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [*command, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120, env=environ
    )
    assert done.returncode == 0, done.stderr
    assert {"summary.json", "worker-0.jsonl", "worker-1.jsonl"} <= {
        path.name for path in (tmp_path / "runs/1").iterdir()
    }


def test_absent_worker_is_named_within_the_timeout(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [
        sys.executable,
        "-m",
        "isthmus",
        "train",
        str(book.folder),
        "--timeout",
        "2",
        "--out",
        str(tmp_path / "r"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **place})
    assert done.returncode == 3
    assert "worker 1 of 2 did not arrive" in done.stderr


def test_doctor(isthmus, monkeypatch):
    status, said, _ = isthmus("doctor", "--json")
    assert status == 0
    assert json.loads(said.splitlines()[-1])["backend"] in ("gloo", "nccl")
    monkeypatch.setattr("isthmus.kernels.native.path", lambda: None)
    assert "C++" in isthmus("doctor")[1]
