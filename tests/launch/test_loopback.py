"""Workers of one machine listen on loopback alone, whoever starts them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from graphs import community_graph, cut
from listeners import listeners, open_to_others
from processes import free_port, reached, started, until, workers_of

from isthmus.launch.network import addresses
from isthmus.launch.place import detect

pytestmark = pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="needs Linux's /proc to see sockets")
LONG = ("--steps", "1000000", "--eval-every", "5", "--timeout", "60")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
OUTSIDE = next((one for one in addresses().values() if not one.startswith("127.")), "")
NOT_SET = {"GLOO_SOCKET_IFNAME": ""}


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    return cut(community_graph(), 2, "random", tmp_path_factory.mktemp("parts")).folder


def seen(runs, pids, run) -> tuple[int, list[str]]:
    """How many listeners these processes have while they train, and those that others can reach."""
    try:
        until(lambda: reached(run, 5) or any(one.poll() is not None for one in runs), 60)
        assert reached(run, 5), [one.communicate()[1] for one in runs if one.poll() is not None]
        found = pids()
        return sum(len(listeners(pid)) for pid in found), open_to_others(found)
    finally:
        for one in runs:
            one.send_signal(signal.SIGTERM)
        for one in runs:
            one.communicate(timeout=60)


def test_started_by_the_command(parts, tmp_path):
    """The interface that the environment names is for workers of several machines."""
    run = started(parts, tmp_path / "run", *LONG, GLOO_SOCKET_IFNAME="eth0")
    count, open_ = seen([run], lambda: [run.pid, *workers_of(run.pid)], tmp_path / "run")
    assert count
    assert open_ == []


@pytest.mark.full
def test_started_by_torchrun(parts, tmp_path):
    """The agent keeps a store of its own, which is torchrun's and not ours."""
    run = started(parts, tmp_path / "run", *LONG, launcher=TORCHRUN, **NOT_SET)
    count, open_ = seen([run], lambda: workers_of(run.pid), tmp_path / "run")
    assert count
    assert open_ == []


def by_variables(rank: int, port: int) -> dict[str, str]:
    place = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    return {**place, "MASTER_ADDR": OUTSIDE, "MASTER_PORT": str(port)}


def by_srun(rank: int, port: int) -> dict[str, str]:
    step = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": OUTSIDE}
    return {**step, "SLURM_PROCID": str(rank), "MASTER_PORT": str(port)}


@pytest.mark.skipif(not OUTSIDE, reason="this machine has no address but loopback")
@pytest.mark.parametrize("variables", [by_variables, pytest.param(by_srun, marks=pytest.mark.full)])
def test_started_on_one_machine_by_its_outside_name(parts, tmp_path, variables):
    port = free_port()
    runs = [started(parts, tmp_path / "run", *LONG, **NOT_SET, **variables(rank, port)) for rank in range(2)]
    count, open_ = seen(runs, lambda: [one.pid for one in runs], tmp_path / "run")
    assert count
    assert open_ == []


def test_who_says_that_all_workers_are_here():
    """Without a word of the launcher they may be anywhere."""
    by_hand = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    srun = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NODELIST": "a"}
    assert not detect(by_hand).together
    assert not detect({**by_hand, "LOCAL_WORLD_SIZE": "1"}).together
    assert detect({**by_hand, "LOCAL_WORLD_SIZE": "2"}).together
    assert not detect(srun).together
    assert not detect({**srun, "SLURM_STEP_NUM_NODES": "2"}).together
    assert detect({**srun, "SLURM_STEP_NUM_NODES": "1"}).together
