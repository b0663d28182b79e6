"""`isthmus compare` as a person meets it. Workers are threads but where links or processes are the point."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from beds import needs_testbed
from graphs import community_graph, cut
from runs import as_threads
from safetensors.torch import load_file

from isthmus import cli
from isthmus.errors import Stopped, WorkerError
from isthmus.launch import local
from isthmus.partition import Book

QUICK = ("--hidden", "8", "--steps", "6", "--eval-every", "2", "--out", "c")
TWO = ("--recipes", "vanilla, bns rate=0.5")


@pytest.fixture
def compare(monkeypatch, capsys, tmp_path):
    """Runs the command in a folder with parts of a small graph; gives (exit status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    cut(community_graph(), 2, "random", tmp_path).folder.rename("parts")

    def call(*arguments: str, source: str = "parts") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["isthmus", "compare", source, *arguments])
        threads = torch.get_num_threads()
        with pytest.raises(SystemExit) as end:
            cli.main()
        torch.set_num_threads(threads)
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err

    return call


@pytest.fixture
def started(monkeypatch) -> list[str]:
    """Makes workers threads of this process; lists the runs as (recipe, seed) when they start."""
    runs: list[str] = []

    def start(job, workers, testbed=None):
        runs.append(f"{job.config.recipe} {job.config.seed}")
        return as_threads(job, workers)

    monkeypatch.setattr(local, "start", start)
    return runs


def test_from_a_graph_to_a_page(compare, started):
    """An uncut graph is cut once; runs of a seed begin with the same weights."""
    status, said, told = compare(*QUICK, "--seeds", "2", "--workers", "3", source="synthetic:flickr@0.01")
    assert status == 0
    assert started == ["vanilla 0", "exact 0", "bns 0", "pipegcn 0", "exact 1", "bns 1", "pipegcn 1", "vanilla 1"]
    assert "8/8 vanilla, seed 1: test 0." in told
    assert "wrote c/compare.html" in said
    assert sorted(path.name for path in Path("c").iterdir()) == [
        *("bns", "compare.html", "compare.json", "exact", "parts", "pipegcn", "vanilla"),
    ]
    first = [load_file(f"c/{name}/seed-1/checkpoints/step-0/model.safetensors") for name in ("vanilla", "bns")]
    assert all(torch.equal(first[0][name], first[1][name]) for name in first[0])
    parts = {json.loads(Path(f"c/{name}/seed-0/config.json").read_text())["parts"] for name in ("exact", "bns")}
    assert parts == {str(Path("c/parts").resolve())}


def test_figures(compare, started):
    status, said, _ = compare(*QUICK, *TWO, "--seeds", "2", "--quiet", "--json")
    assert status == 0
    told = json.loads(said.splitlines()[-1])
    assert (told["base"], told["workers"], told["seeds"], told["link"]) == ("vanilla", 2, 2, None)
    vanilla, bns = told["recipes"]
    summaries = [json.loads(Path(f"c/bns-rate=0.5/seed-{seed}/summary.json").read_text()) for seed in (0, 1)]
    assert bns["test"]["values"] == [summary["test"]["score"] for summary in summaries]
    assert bns["bytes_per_step"]["gradients"] < vanilla["bytes_per_step"]["gradients"]
    assert vanilla["speed_up"]["mean"] == 1
    assert bns["speed_up"]["mean"] > 0
    assert set(vanilla["seconds_to_target"]) == {"0", "1"}
    assert told["target"]["of"] == "val"
    assert sum(bns["step_split"].values()) > 0


def test_a_failure_loses_only_itself_and_resume_does_the_rest(compare, started, monkeypatch):
    well = local.start

    def start(job, workers, testbed=None):
        if job.config.recipe == "bns" and job.config.seed == 1:
            raise WorkerError("worker 1 was ended by SIGKILL")
        return well(job, workers, testbed)

    monkeypatch.setattr(local, "start", start)
    status, said, complaint = compare(*QUICK, *TWO, "--seeds", "2")
    assert status == 3
    assert started == ["vanilla 0", "bns 0", "vanilla 1"]
    assert "1 failed" in said
    assert "bns rate=0.5, seed 1: worker 1 was ended by SIGKILL" in complaint
    assert "seed 1 failed: worker 1 was ended by SIGKILL" in Path("c/compare.html").read_text()

    monkeypatch.setattr(local, "start", well)
    Path("c/vanilla/seed-0/summary.json").unlink()  # as if it had been interrupted
    del started[:]
    assert compare(*QUICK, *TWO, "--seeds", "2")[0] == 2
    status, said, told = compare(*QUICK, "--recipes", "vanilla, bns rate=0.5, exact", "--seeds", "2", "--resume")
    assert status == 0
    assert started == ["vanilla 0", "exact 0", "bns 1", "exact 1"]
    assert "failed" not in said
    assert "bns rate=0.5, seed 0: done before" in told
    assert "failed: " not in Path("c/compare.html").read_text()


def test_half_a_summary_is_no_run_and_parts_alone_are_no_comparison(compare, started):
    given = {"source": "synthetic:flickr@0.01"}
    assert compare(*QUICK, *TWO, "--seeds", "1", "--workers", "2", **given)[0] == 0
    summary = next(Path("c").glob("bns*/seed-0/summary.json"))
    summary.write_text(summary.read_text()[:20])
    assert compare(*QUICK, *TWO, "--seeds", "1", "--workers", "2", "--resume", **given)[0] == 0
    assert started == ["vanilla 0", "bns 0", "bns 0"]
    for left in Path("c").iterdir():
        if left.name != "parts":
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    assert compare(*QUICK, *TWO, "--seeds", "1", "--workers", "3", **given)[0] == 0  # cut anew, in three
    assert Book.read("c/parts").num_parts == 3


def test_ctrl_c_says_what_resume_does(compare, monkeypatch):
    def stopped(job, workers, testbed=None):
        raise Stopped("checkpoint of step 1 written; --resume goes on from there", 130)

    monkeypatch.setattr(local, "start", stopped)
    status, _, told = compare(*QUICK, *TWO, "--seeds", "1")
    assert status == 130
    assert "stopped during 1/2 vanilla, seed 0: --resume repeats it and does those after it" in told


def test_resume_refuses_other_settings(compare, started):
    assert compare(*QUICK, *TWO, "--seeds", "1")[0] == 0
    status, _, complaint = compare(*QUICK, *TWO, "--seeds", "1", "--resume", "--lr", "0.5", "--threads", "1")
    assert status == 2
    assert "c was begun with other settings of threads, lr" in complaint
    status, said, _ = compare(*QUICK, *TWO, "--seeds", "1", "--resume", "--target", "0.999")
    assert status == 0
    assert "not reached" in said
    assert started == ["vanilla 0", "bns 0"]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--recipes", "vanilla, magic"), "unknown recipe 'magic'"),
        (("--seeds", "0"), "seeds must be at least 1"),
        (("--workers", "5"), "2 parts but 5 workers"),
        (("--hosts", "2"), "give --link RATE too"),
        (("--link", "quick"), "like 300mbit"),
        (("--resume",), "no comparison to resume"),
        (("--method", "ldg"), "is already cut"),
        (("--model", "mlp"), "gcn, sage, gat"),
        (("--timeout", "0"), "timeout must be above 0"),
        (("--out", "parts"), "parts is not empty"),
    ],
)
def test_bad_options(compare, started, options, word):
    status, said, complaint = compare(*QUICK, *options)
    assert (status, said) == (2, "")
    assert word in complaint
    assert complaint.count("\n") == 1
    assert not Path("c").exists()
    assert started == []


def test_links_need_root(compare, started, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    status, _, complaint = compare(*QUICK, "--link", "1gbit")
    assert status == 2
    assert "only root may make network namespaces" in complaint
    assert not Path("c").exists()


def test_not_under_torchrun(compare, started, monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(cli, "leave", sys.exit)
    status, _, complaint = compare(*QUICK)
    assert status == 2
    assert "without torchrun or srun" in complaint


@needs_testbed
def test_over_links(compare):
    options = (*QUICK, "--recipes", "exact", "--seeds", "1", "--link", "100mbit")
    status, said, told = compare(*options, "--json")
    assert status == 0, told
    result = json.loads(said.splitlines()[-1])
    assert (result["link"], result["hosts"]) == ("100mbit", 2)
    assert result["measured"] > 0
    wire = result["recipes"][0]["wire"]
    assert wire["payload_bytes"] > wire["counted_bytes"] > 0
    assert "The count and the wire" in Path("c/compare.html").read_text()


def test_fewer_workers_than_parts(compare, started):
    """As train has it; a resumed comparison goes on with as many as it had."""
    one = ("--recipes", "exact", "--quiet", "--json")
    status, said, _ = compare(*QUICK, *one, "--seeds", "1", "--workers", "1")
    assert (status, json.loads(said.splitlines()[-1])["workers"]) == (0, 1)
    assert json.loads(Path("c/exact/seed-0/summary.json").read_text())["workers"] == 1
    assert compare(*QUICK, *one, "--seeds", "2", "--resume")[0] == 0
    assert json.loads(Path("c/exact/seed-1/summary.json").read_text())["workers"] == 1
    status, _, complaint = compare(*QUICK, *one, "--workers", "3", "--resume")
    assert (status, complaint.count("\n")) == (2, 1)
    assert "2 parts but 3 workers" in complaint


def test_a_panel_of_graphs(compare, started):
    """Every graph of a folder and one beside it are compared; the table says what each recipe loses, worst first."""
    shutil.copytree("parts", "graphs/other")
    asked = ("--panel", "graphs", "--recipes", "exact, bns rate=0.5", "--seeds", "2", "--json")
    status, said, _ = compare(*QUICK, *asked)
    assert status == 0
    assert len(started) == 8
    panel = json.loads(said.splitlines()[-1])["panel"]
    assert [cell["recipe"] for cell in panel] == ["bns rate=0.5"] * 2
    assert panel[0]["points"] <= panel[1]["points"]
    summary = [
        json.loads(Path(f"c/other/{name}/seed-{k}/summary.json").read_text())
        for name, k in (("exact", 0), ("exact", 1), ("bns-rate=0.5", 0), ("bns-rate=0.5", 1))
    ]
    tests = [one["test"]["score"] for one in summary]
    assert panel[0]["points"] == pytest.approx(50 * (tests[2] + tests[3] - tests[0] - tests[1]))
    assert Path("c/panel.html").is_file()
    assert Path("c/panel.md").read_text().count("bns rate=0.5") == 2
    status, _, told = compare(*QUICK, "--panel", "graphs", "--recipes", "vanilla")
    assert status == 2
    assert "a panel measures from exact" in told
    assert len(started) == 8
