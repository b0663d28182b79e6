"""Where a worker stands, from what torchrun and srun say."""

from __future__ import annotations

import pytest

from isthmus.errors import InputError
from isthmus.launch.place import detect, first_host


def test_nobody_started_us():
    assert detect({}) is None
    assert detect({"SLURM_PROCID": "0", "SLURM_JOB_ID": "5"}) is None  # inside sbatch, but not under srun


def test_torchrun():
    environ = {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "a1", "MASTER_PORT": "29500", "LOCAL_WORLD_SIZE": "4"}
    place = detect(environ)
    assert (place.rank, place.size, place.host, place.port, place.local_size) == (3, 8, "a1", 29500, 4)
    assert not place.restarted
    assert detect({**environ, "TORCHELASTIC_RESTART_COUNT": "1"}).restarted
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
    place = detect(environ)
    assert (place.rank, place.size, place.host, place.local_size, place.launcher) == (5, 8, "gpu03", 4, "srun")
    assert detect({**environ, "SLURM_JOB_ID": "772"}).port != place.port
    assert detect({**environ, "SLURM_RESTART_COUNT": "2"}).restarted


@pytest.mark.parametrize(
    ("nodelist", "host"),
    [("n1", "n1"), ("n1,n2", "n1"), ("n[07-09,12],m1", "n07"), ("rack[1,3]-n", "rack1-n"), ("a-b.c,d", "a-b.c")],
)
def test_first_host(nodelist, host):
    assert first_host(nodelist) == host
