"""What the doctor finds on this machine, and between workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from beds import needs_testbed

from isthmus import kernels
from isthmus.comm import Hub
from isthmus.diagnose import doctor, meeting
from isthmus.diagnose.links import Link, measure_links
from isthmus.diagnose.meeting import Meeting, WorkerFacts
from isthmus.errors import WorkerError
from isthmus.launch import network
from isthmus.launch.place import Place
from isthmus.testbed import Testbed as Bed
from isthmus.testbed import run_on_hosts

ISTHMUS = [sys.executable, "-m", "isthmus"]
HERE = WorkerFacts("a", "eth0", "10.0.0.1", "0.1.0", "2.13.0", "3.11.2", "avx2")


def there(number: int, **changes) -> WorkerFacts:
    return replace(HERE, host=f"host{number}", address=f"10.0.0.{number}", **changes)


def test_every_pair_is_measured_once_in_each_direction():
    results = Hub(3).run(measure_links)
    assert results[0] == results[1] == results[2]
    assert [(link.source, link.target) for link in results[0]] == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
    assert all(link.bits_per_second > 1e6 and 0 < link.latency_seconds < 10 for link in results[0])


@pytest.mark.full
@pytest.mark.parametrize("workers", [2, 3])
def test_under_torchrun(workers):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(workers)]
    environ = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    command = [*torchrun, "-m", "isthmus", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environ)
    assert done.returncode == 0, done.stderr
    (said,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(said["links"]) == workers * (workers - 1)
    assert [(one["interface"], one["address"]) for one in said["workers"]] == [("lo", "127.0.0.1")] * workers
    assert said["versions"] == "equal on all workers"
    assert said["wrong"] == {}


@needs_testbed
def test_a_narrow_link_is_measured_as_narrow(capfd):
    with Bed(2, "100mbit") as bed:
        assert run_on_hosts(bed, [*ISTHMUS, "doctor", "--json"]) == 0
    said = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert [one["interface"] for one in said["workers"]] == ["eth0", "eth0"]
    assert [link["bits_per_second"] for link in said["links"]] == pytest.approx([1e8, 1e8], rel=0.25)


def test_workers_that_do_not_fit():
    unlike = [there(1), there(2, torch="2.9.0", core="missing"), there(3)]
    links = [Link(a, b, 1e7 if (a, b) == (2, 0) else 1e9, 1e-4) for a in range(3) for b in range(3) if a != b]
    found = {one.name: one for one in Meeting(unlike, [[], ["host1"], []], links).findings()}
    assert found["worker 1"].value == "host2, eth0 10.0.0.2"
    assert {name for name, one in found.items() if one.wrong} == {"versions", "cores", "speed"}
    assert found["versions"].value == "torch 2.13.0, 2.9.0, 2.13.0"
    assert "from worker 2 to 0" in found["speed"].advice
    assert found["names"].value == "worker 1 does not know host1"


def test_a_busy_machine_is_no_slow_network():
    links = [Link(0, 1, 1e9, 1e-4), Link(1, 0, 1e11, 1e-4)]
    assert not any(one.wrong for one in Meeting([HERE, HERE], [[], []], links).findings())


def test_loopback_leads_to_no_other_machine(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setattr(network, "addresses", lambda: {"lo": "127.0.0.1", "eth0": "10.0.0.1"})
    far, near = (Place(0, 2, "127.0.0.1", 0, local, "torchrun") for local in (1, 2))
    assert "set GLOO_SOCKET_IFNAME" in meeting.gloo_interface(far).advice
    assert not meeting.gloo_interface(near).wrong
    with pytest.raises(WorkerError, match=r"worker 1 of 2 did not arrive .* set GLOO_SOCKET_IFNAME"):
        meeting.meet(far, timeout=0.5)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth1")
    assert meeting.gloo_interface(far).value == "eth1 no address"
    assert meeting.gloo_interface(far).wrong


def test_the_interface_of_this_machines_name(monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setattr(network, "addresses", lambda: {"lo": "127.0.0.1", "eth0": "10.0.0.1"})
    for address, expected in (
        ("10.0.0.1", "eth0"),
        ("127.0.1.1", "loopback"),
        (None, "loopback"),
        ("9.9.9.9", "unknown"),
    ):
        monkeypatch.setattr(network, "resolved", lambda name, address=address: address)
        assert network.interface()[0] == expected


def test_threads_are_set_by_the_command(monkeypatch):
    """torchrun sets OMP_NUM_THREADS=1, which is not what workers get."""
    monkeypatch.setattr(doctor, "threads_for", lambda workers, asked: asked or 8 // workers)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert (doctor._threads().value, doctor._threads().wrong) == ("8", False)
    place = {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    assert doctor._threads().value == "4 per worker"
    assert doctor._threads().advice == "--threads sets them, OMP_NUM_THREADS does not"


def test_what_a_machine_lacks(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "_can_listen", lambda port: False)
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda what: (64, 64))
    monkeypatch.setattr(doctor, "SHARED_MEMORY", tmp_path / "absent")
    found = {one.name: one for one in doctor.examine()}
    assert found["free ports"].wrong
    assert found["open files"].wrong
    assert "ulimit -n" in found["open files"].advice
    assert found["shared memory"].value == "no /dev/shm"
    monkeypatch.setattr(doctor, "_can_listen", lambda port: port == 0)
    assert "29500 is taken" in {one.name: one.advice for one in doctor.examine()}["free ports"]


def test_doctor_says_what_auto_will_do(monkeypatch):
    for fast, value in ((True, "by the processor itself"), (False, "slow")):
        monkeypatch.setattr(kernels, "bf16_is_fast", lambda fast=fast: fast)
        (found,) = [finding for finding in doctor.examine() if finding.name == "bf16 products"]
        assert (found.value, found.wrong) == (value, False)
        assert "precision=auto" in found.advice
