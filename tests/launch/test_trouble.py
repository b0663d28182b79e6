"""What goes wrong around a run: each ends with one clear line, in time, and leaves earlier results as they were."""

from __future__ import annotations

import resource
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from graphs import community_graph, cut
from processes import contents, free_port, started, steps_of
from safetensors.torch import load_file

from isthmus import cli
from isthmus.comm.meet import meet
from isthmus.engine.checkpoint import damage
from isthmus.errors import WorkerError
from isthmus.launch.start import free_folder

QUICK = ("--hidden", "64", "--eval-every", "2", "--quiet")


@pytest.fixture
def isthmus(monkeypatch, capsys):
    """Runs a command in this process; gives (exit status, its complaint)."""

    def run(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["isthmus", *map(str, arguments)])
        threads = torch.get_num_threads()
        try:
            cli.main()
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        finally:
            torch.set_num_threads(threads)
        return status, capsys.readouterr().err

    return run


@pytest.fixture
def disk(tmp_path):
    """mount(options) makes a small disk of its own, or changes it."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
        if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("only root may mount a small disk")
        return folder

    yield mount
    subprocess.run(["umount", str(folder)], capture_output=True)


def refused(outcome: tuple[int, str], *words: str) -> None:
    status, complaint = outcome
    assert status == 2
    assert len([line for line in complaint.splitlines() if not line.startswith("note:")]) == 1, complaint
    for word in words:
        assert word in complaint


def test_disk_full(tmp_path, disk, isthmus):
    """Three checkpoints do not fit: two whole ones stay, and once there is room the run goes on from the second."""
    book = cut(community_graph(), 1, "random", tmp_path)
    out = disk("size=120k") / "run"
    options = ("train", book.folder, *QUICK, "--steps", 12)
    refused(isthmus(*options, "--out", out), "No space left on device", "--resume goes on")
    kept = sorted(path.name for path in (out / "checkpoints").iterdir())
    assert kept[0] == "step-0"
    assert all(name.startswith("step-") and not damage(out / "checkpoints" / name) for name in kept)
    disk("remount,size=1m")
    assert isthmus(*options, "--out", out, "--resume")[0] == 0
    assert isthmus(*options, "--out", tmp_path / "whole")[0] == 0
    one, other = (load_file(run / "checkpoints/step-12/model.safetensors") for run in (out, tmp_path / "whole"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_file_too_large(tmp_path, isthmus):
    """The same where nobody may mount a disk: a limit on the size of files."""
    book, out = cut(community_graph(), 1, "random", tmp_path), tmp_path / "run"
    assert isthmus("train", book.folder, *QUICK, "--steps", 2, "--out", out)[0] == 0
    before = contents(out / "checkpoints")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, hard))
    try:
        outcome = isthmus("train", book.folder, *QUICK, "--steps", 4, "--out", out, "--resume")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    refused(outcome, "cannot write", "step-4", "File too large")
    assert contents(out / "checkpoints") == before


def test_read_only_folder(tmp_path, disk, isthmus):
    book = cut(community_graph(), 1, "random", tmp_path)
    out = disk("size=1m") / "run"
    assert isthmus("train", book.folder, *QUICK, "--steps", 2, "--out", out)[0] == 0
    disk("remount,ro")
    before = contents(out)
    for run, resume in ((out, ["--resume"]), (out.parent / "another", [])):
        outcome = isthmus("train", book.folder, *QUICK, "--steps", 4, "--out", run, *resume)
        refused(outcome, f"cannot write {run}", "give another --out")
    assert contents(out) == before


def test_changed_options_and_damaged_checkpoints(tmp_path, isthmus):
    book, out = cut(community_graph(), 2, "random", tmp_path), tmp_path / "run"
    options = ("train", book.folder, *QUICK, "--workers", 1, "--out", out)
    assert isthmus(*options, "--steps", 2)[0] == 0
    before = contents(out)
    refused(isthmus(*options, "--steps", 4, "--resume", "--lr", 0.5), "lr was 0.01 and is 0.5 now")
    refused(isthmus(*options, "--steps", 4, "--resume", "--recipe", "bns"), ": recipe was exact and is bns now")
    other = cut(community_graph(seed=9), 2, "random", tmp_path / "other")
    refused(
        isthmus("train", other.folder, *options[2:], "--steps", 4, "--resume"), "started with other options: parts was"
    )
    assert contents(out) == before
    for folder in (out / "checkpoints").iterdir():
        (folder / "model.safetensors").write_bytes(b"\0" * 100)
    before = contents(out)
    status, complaint = isthmus(*options, "--steps", 4, "--resume")
    assert status == 2
    assert complaint.splitlines()[-1].startswith("error: every checkpoint of")
    assert [line.startswith("note: ") for line in complaint.splitlines()] == [True, True, False]
    assert contents(out) == before


def test_as_torchrun_shows_it(tmp_path):
    """Its own status is 1; ours is in its report, and below the line that says what is wrong."""
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    run = started(tmp_path / "parts", tmp_path / "run", "--lr", "-1", launcher=torchrun)
    complaint = run.communicate(timeout=120)[1]
    assert run.returncode == 1
    assert complaint.index("error: lr must be above 0") < complaint.index("Root Cause")
    assert "exitcode  : 2" in complaint.split("Root Cause")[1]


def test_resume_takes_the_workers_that_the_run_had(tmp_path, isthmus):
    book, out = cut(community_graph(), 2, "random", tmp_path), tmp_path / "run"
    options = ("train", book.folder, *QUICK, "--out", out)
    assert isthmus(*options, "--workers", 1, "--steps", 2)[0] == 0
    assert isthmus(*options, "--steps", 4, "--resume") == (0, "")
    assert isthmus("verify", book.folder, "--workers", 1)[0] == 0
    assert isthmus("predict", out, "--out", tmp_path / "p.npy")[0] == 0
    assert steps_of(out)[-1] == 4
    refused(isthmus(*options, "--workers", 3, "--steps", 6, "--resume"), "2 parts but 3 workers")
    refused(isthmus(*options, "--restarts", -1), "restarts must be at least 0")


def test_others_that_do_not_answer(tmp_path):
    """A port that is taken, a stranger who listens and says nothing, nobody who listens, a host that is not known."""
    book = cut(community_graph(), 2, "random", tmp_path)
    with socket.create_server(("", 0)) as stranger:
        taken, free = str(stranger.getsockname()[1]), str(free_port())
        cases = [
            ("0", "127.0.0.1", taken, f"port {taken} of this machine is taken: give another MASTER_PORT"),
            ("1", "127.0.0.1", taken, "does another program have that port? Give another MASTER_PORT"),
            ("1", "nowhere.invalid", free, "the host nowhere.invalid is unknown; correct MASTER_ADDR"),
        ]
        runs = []
        for rank, host, port, _ in cases:
            place = {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": host, "MASTER_PORT": port}
            runs.append(started(book.folder, tmp_path / "run", "--timeout", "2", **place))
        for run, (_, _, _, words) in zip(runs, cases, strict=True):
            complaint = run.communicate(timeout=60)[1]
            assert run.returncode == 3
            assert words in complaint
            assert complaint.count("\n") == 1
    assert not (tmp_path / "run").exists()
    with pytest.raises(WorkerError, match=r"could not meet the others .* within 0.5 s: is worker 0 running"):
        meet(1, 2, "127.0.0.1", int(free), 0.5)


RAISES = """
from torch import nn


class Net(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.last = nn.Linear(features, classes)

    def forward(self, graph, x):
        return self.first(x)
"""


def test_a_model_that_raises_is_shown_once_and_not_tried_again(tmp_path):
    """It would fail again; the last line says what it was, and where."""
    book = cut(community_graph(), 2, "metis", tmp_path)
    (tmp_path / "models.py").write_text(RAISES)
    asked = ("--model", "models:Net", "--out", "run", "--quiet")
    command = (sys.executable, "-m", "isthmus", "train", book.folder, *asked)
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert run.returncode == 3
    assert run.stderr.count("Traceback") == 1
    assert "starting again" not in run.stderr
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("error: worker 0 raised AttributeError: 'Net' object has no attribute 'first'")


@pytest.mark.full
def test_a_model_that_ends_its_worker(tmp_path):
    book = cut(community_graph(), 2, "metis", tmp_path)
    (tmp_path / "models.py").write_text(RAISES.replace("return self.first(x)", "raise SystemExit(2)"))
    command = (
        sys.executable,
        "-m",
        "isthmus",
        "train",
        book.folder,
        "--model",
        "models:Net",
        "--out",
        "run",
        "--quiet",
    )
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert run.returncode == 3
    assert run.stderr.strip().splitlines()[-1].startswith("error: worker 0 raised SystemExit: 2 (models.py")


def test_parts_of_a_run_that_did_not_begin_are_cut_anew(tmp_path, isthmus, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ("train", "synthetic:flickr@0.01", *QUICK, "--steps", 2, "--workers", 1, "--out", "run")
    refused(isthmus(*options, "--split", 7), "split 7 does not exist")
    assert (tmp_path / "run/parts/book.json").exists()
    assert isthmus(*options)[0] == 0
    refused(isthmus(*options), "run holds an earlier run")


def test_two_that_begin_at_once_have_folders_of_their_own(tmp_path):
    assert [free_folder(tmp_path / "runs").name for _ in range(3)] == ["1", "2", "3"]
