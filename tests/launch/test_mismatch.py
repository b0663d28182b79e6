"""Commands that were started differently on two machines end with the same line on both, and status 2."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs import community_graph, cut
from processes import free_port, started

from isthmus.engine import TrainConfig
from isthmus.errors import InputError
from isthmus.launch import local, start
from isthmus.launch.job import Job
from isthmus.launch.place import Place
from isthmus.launch.supervise import variables


def torchrun(rank: int, port: int) -> dict[str, str]:
    place = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}
    return {**place, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def srun(rank: int, port: int) -> dict[str, str]:
    step = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": "localhost"}
    return {**step, "SLURM_PROCID": str(rank), "MASTER_PORT": str(port)}


@pytest.mark.parametrize(
    ("variables", "option", "words"),
    [
        (torchrun, ("--lr", "0.5"), "lr is 0.01 on worker 0 and 0.5 on worker 1"),
        pytest.param(srun, ("--seed", "1"), "seed is 0 on worker 0 and 1 on worker 1", marks=pytest.mark.full),
        pytest.param(
            srun, ("--out", "elsewhere"), "out is {run} on worker 0 and elsewhere on worker 1", marks=pytest.mark.full
        ),
    ],
)
def test_refused_by_both(tmp_path, variables, option, words):
    book, port = cut(community_graph(), 2, "random", tmp_path), free_port()
    options = [("--timeout", "60"), ("--timeout", "60", *option)]
    runs = [started(book.folder, tmp_path / "run", *options[k], **variables(k, port)) for k in range(2)]
    for run in runs:
        complaint = run.communicate(timeout=60)[1]
        assert run.returncode == 2, complaint
        assert complaint.count("\n") == 1
        assert words.format(run=tmp_path / "run") in complaint
    assert not (tmp_path / "run").exists()


def test_refused_where_the_command_starts_the_workers(tmp_path, monkeypatch):
    """They all get the same job; should one have another, the command says what they found."""
    book = cut(community_graph(), 2, "random", tmp_path)
    asked = Job("train", str(book.folder), TrainConfig(steps=2), str(tmp_path / "run"), quiet=True, timeout=60)

    def tampered(job, rank, *about):
        mine = replace(job, config=replace(job.config, seed=rank))
        return variables(mine, rank, *about)

    monkeypatch.setattr(local, "variables", tampered)
    with pytest.raises(InputError, match="seed is 0 on worker 0 and 1 on worker 1"):
        local.start(asked, 2)
    assert not (tmp_path / "run").exists()


def test_another_number_of_workers_than_were_started(tmp_path):
    book, port = cut(community_graph(), 2, "random", tmp_path), free_port()
    run = started(book.folder, tmp_path / "run", "--workers", "3", **torchrun(0, port))
    complaint = run.communicate(timeout=60)[1]
    assert run.returncode == 2
    assert "--workers 3, but torchrun has started 2: leave --workers out, or let torchrun start 3" in complaint


def test_as_many_workers_as_were_started():
    place = Place(0, 2, "", 0, 1, "srun")
    start._check_count(None, place)
    start._check_count(2, place)
    with pytest.raises(InputError, match="srun has started 2"):
        start._check_count(1, place)
