"""Files that cannot be trusted, as the commands meet them: one line, exit status 2, nothing run, nobody waits."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from graphs import community_graph, cut, npz, tables
from runs import predicted, trained

from isthmus import cli, recipes
from isthmus.engine import TrainConfig
from isthmus.errors import InputError
from isthmus.experiments.plan.rehearse import rehearse
from isthmus.files import sealed, sha256
from isthmus.partition import Book


@pytest.fixture
def refused(monkeypatch, capsys, tmp_path):
    """Runs a command that must be refused; gives its one line."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["isthmus", *arguments])
        threads = torch.get_num_threads()
        try:
            with pytest.raises(SystemExit) as end:
                cli.main()
        finally:
            torch.set_num_threads(threads)
        told = capsys.readouterr().err.splitlines()
        said = [line for line in told if not line.endswith(("…", "worker(s)"))]  # but for progress and title
        assert end.value.code == 2
        assert len(said) == 1, said
        return said[0]

    return run


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return cut(community_graph(), 2, "random", tmp_path_factory.mktemp("parts")).folder


@pytest.fixture
def parts(original, tmp_path):
    return shutil.copytree(original, tmp_path / "parts")


def put(folder: Path, name: str, place: int, value: int, fit: bool) -> None:
    """A number written into an array of part 1; ``fit`` makes the checksums right again."""
    path = folder / "part-1" / f"{name}.npy"
    array = np.load(path)
    array[place] = value
    np.save(path, array)
    if fit:
        book = json.loads((folder / "book.json").read_text())
        del book["sha256"]
        book["parts"][1]["files"][path.name]["sha256"] = sha256(path)
        (folder / "book.json").write_text(json.dumps(sealed(book)))


@pytest.mark.parametrize("fit", [False, True])
@pytest.mark.parametrize("name", ["inner_indices", "halo_indices", "inner_indptr", "send_rows"])
def test_damaged_parts_and_every_command_that_loads_them(refused, parts, name, fit):
    put(parts, name, 2, 2**30, fit)
    complaint = f"part-1/{name}.npy {'' if fit else 'is corrupt'}"
    assert complaint in refused("variance", "parts", "--draws", "2")
    asked, policy = TrainConfig(), recipes.find("exact").policy()
    with pytest.raises(InputError, match=complaint):  # what `plan` does of every recipe
        rehearse(Book.read(parts), asked, policy, workers=2, threads=1, at_once=1, steps=1)
    for command in ("train", "verify"):
        assert complaint in refused(command, "parts", "--workers", "1", "--steps", "1")


def test_a_run_folder_that_names_something_else_than_a_model(refused, tmp_path):
    _, run, _ = trained(community_graph(), 1, tmp_path)
    config = json.loads((run / "config.json").read_text())
    config["model"]["model"] = "subprocess:call"
    (run / "config.json").write_text(json.dumps(config))
    for more in ((), ("--trust",)):
        assert "subprocess:call" in refused("predict", str(run), "--out", "a.npy", *more)
    book = json.loads((tmp_path / "random-1" / "book.json").read_text())
    book["features"] = ["touch", str(tmp_path / "MARK")]
    (tmp_path / "random-1" / "book.json").write_text(json.dumps(book))
    assert "book.json" in refused("predict", str(run), "--out", "a.npy", "--model", "subprocess:call")
    assert not (tmp_path / "MARK").exists()


def test_pipes_and_names_that_lead_elsewhere(refused, tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    assert "pipe.npz" in refused("partition", "pipe.npz", "--parts", "2", "--out", "p")
    folder = tables(tmp_path / "tables", range(120))
    (folder / "nodes.csv").unlink()
    os.mkfifo(folder / "nodes.csv")
    assert "nodes.csv is not an ordinary file" in refused("partition", "tables", "--parts", "2", "--out", "p")
    assert "../.." in refused("partition", "../..", "--parts", "2", "--out", "p")
    assert "File name too long" in refused("train", "x" * 5000)
    (tmp_path / "run").mkdir()
    os.mkfifo(tmp_path / "run" / "config.json")
    for command in (("report", "run"), ("predict", "run", "--out", "a.npy")):
        assert "no config.json" in refused(*command)


def test_json_that_is_nested_without_end(refused, parts):
    (parts / "book.json").write_text("[" * 200_000)
    assert "damaged json" in refused("inspect", "parts")


def test_a_zip_that_unpacks_to_more_than_it_may(refused, tmp_path):
    with (
        zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w", force_zip64=True) as file,
    ):
        for _ in range(300):
            file.write(bytes(1 << 20))
    complaint = refused("partition", "bomb.npz", "--parts", "2", "--out", "p")
    assert "unpacks to more than 268,435,456: if that is meant, set ISTHMUS_MAX_UNPACKED" in complaint


def test_an_array_that_claims_to_be_larger_than_it_is(refused, tmp_path):
    source = npz(tmp_path / "mine.npz")
    content = {name: array for name, array in np.load(source).items() if name != "x"}
    with zipfile.ZipFile(tmp_path / "large.npz", "w") as archive:
        for name, array in content.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.save(file, array)
        head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (120, 100000000000), }".ljust(117) + b"\n"
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
    assert "damaged at x" in refused("partition", "large.npz", "--parts", "2", "--out", "p")


def test_a_model_that_does_not_fit_the_memory(refused, parts):
    for hidden in (10**12, 2**60):
        complaint = refused("train", "parts", "--workers", "1", "--hidden", str(hidden), "--out", "run", "--quiet")
        assert "there is not enough memory" in complaint


def test_too_few_file_descriptors(refused, parts):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(name) for name in os.listdir("/proc/self/fd")}  # the limit is on numbers: there may be gaps
    free = [number for number in range(len(used) + 12) if number not in used]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[11] + 1, hard))
    try:
        complaint = refused("verify", "parts", "--workers", "1")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "`ulimit -n 65536`" in complaint
    assert "write the parts again" not in complaint


@pytest.mark.parametrize("name", ["loss", "metric"])
def test_a_run_folder_cannot_name_a_loss_or_metric(refused, tmp_path, name):
    """Resuming refuses code that only the folder names; predicting has no use for it."""
    book, run, _ = trained(community_graph(), 1, tmp_path, TrainConfig(steps=2, eval_every=1))
    (tmp_path / "bait.py").write_text("raise SystemExit('imported')")
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, name: "bait:fn"}))
    assert f"to run that, add --{name} bait:fn" in refused("train", "--resume", str(run), "--steps", "4")
    predicted(book, run, tmp_path / "nodes.npy", ("class",))
    assert "bait" not in sys.modules
