"""Where a worker stands, from what torchrun and srun say."""

from __future__ import annotations

import pytest

from isthmus.errors import InputError
from isthmus.launch import place
from isthmus.launch.place import detect, first_host


def test_nobody_started_us():
    assert detect({}) is None
    assert detect({"SLURM_PROCID": "0", "SLURM_JOB_ID": "5"}) is None  # inside sbatch, but not under srun


def test_torchrun():
    environ = {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "a1", "MASTER_PORT": "29500", "LOCAL_WORLD_SIZE": "4"}
    found = detect(environ)
    assert (found.rank, found.size, found.host, found.port, found.local_size) == (3, 8, "a1", 29500, 4)
    assert not found.restarted
    assert detect({**environ, "TORCHELASTIC_RESTART_COUNT": "1"}).restarted
    assert detect(environ).launcher == "torchrun"
    del environ["MASTER_ADDR"]
    with pytest.raises(InputError, match="MASTER_ADDR is not: start workers with torchrun"):
        detect(environ)


def test_srun():
    environ = {
        "SLURM_PROCID": "5",
        "SLURM_STEP_NUM_TASKS": "8",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_NODELIST": "gpu[03-04]",
        "SLURM_JOB_ID": "771",
        "SLURM_STEP_ID": "0",
    }
    found = detect(environ)
    assert (found.rank, found.size, found.host, found.local_size, found.launcher) == (5, 8, "gpu03", 4, "srun")
    assert detect({**environ, "SLURM_JOB_ID": "772"}).port != found.port
    assert detect({**environ, "SLURM_RESTART_COUNT": "2"}).restarted
    assert (found.threads, detect({**environ, "SLURM_CPUS_PER_TASK": "6"}).threads) == (None, 6)
    assert found.port < 32768  # the system gives higher ones to outgoing connections
    elsewhere = detect({**environ, "MASTER_ADDR": "gpu04-ib", "MASTER_PORT": "31999"})
    assert (elsewhere.host, elsewhere.port) == ("gpu04-ib", 31999)


def test_no_number():
    place = {"RANK": "a", "WORLD_SIZE": "2", "MASTER_ADDR": "a1", "MASTER_PORT": "29500"}
    with pytest.raises(InputError, match=r"RANK, WORLD_SIZE.* is not a number .*'a'"):
        detect(place)


def test_kubernetes():
    """The pods of an indexed Job have torchrun's variables from its manifest; none knows if it replaces another."""
    environ = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "isthmus-0.isthmus", "MASTER_PORT": "29500"}
    found = detect({**environ, "LOCAL_WORLD_SIZE": "1", "JOB_COMPLETION_INDEX": "1"})
    assert (found.rank, found.size, found.local_size, found.launcher) == (1, 4, 1, "kubernetes")
    assert found.restarted


@pytest.mark.parametrize(("limit", "cores"), [("150000 100000", 2), ("1000 100000", 1), ("max 100000", 4), (None, 4)])
def test_cores_of_a_container(monkeypatch, tmp_path, limit, cores):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 2, 3}, raising=False)
    file = tmp_path / "cpu.max"
    if limit is not None:
        file.write_text(limit)
    assert place._cores(file) == cores


@pytest.mark.parametrize(
    ("nodelist", "host"),
    [("n1", "n1"), ("n1,n2", "n1"), ("n[07-09,12],m1", "n07"), ("rack[1,3]-n", "rack1-n"), ("a-b.c,d", "a-b.c")],
)
def test_first_host(nodelist, host):
    assert first_host(nodelist) == host
