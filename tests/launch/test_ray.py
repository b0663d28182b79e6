"""Workers on a Ray cluster of this machine."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from graphs import community_graph, cut
from listeners import listeners, open_to_others
from processes import reached, steps_of, until
from safetensors.torch import load_file

from isthmus.engine import TrainConfig
from isthmus.errors import InputError, Stopped
from isthmus.launch import on_ray
from isthmus.launch.job import Job
from isthmus.launch.start import launch
from isthmus.nn import ModelConfig

SMALL = TrainConfig(model=ModelConfig("sage", 2, 8), steps=6, eval_every=2)


@pytest.fixture(scope="module")
def cluster():
    """Two cores of this machine, on loopback; nothing is sent to anyone."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'isthmus[ray]' to run this test")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init("local", num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    yield ray
    ray.shutdown()


def job(parts: Path, out: Path, steps: int = 6, **changes) -> Job:
    return Job("train", str(parts), replace(SMALL, steps=steps), str(out), quiet=True, timeout=120.0, **changes)


def workers_of(run: Path) -> dict[int, int]:
    """The worker processes of a run, by rank."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environ = (folder / "environ").read_text()
            if "isthmus.launch.worker" in (folder / "cmdline").read_text() and f'"{run}"' in environ:
                found[int(re.search(r"\0RANK=(\d+)", f"\0{environ}")[1])] = int(folder.name)
        except (OSError, UnicodeDecodeError):
            continue
    return found


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@contextmanager
def meanwhile(act):
    """Something that happens while a run is under way, and if it fails, ends that."""
    failed = []

    def acting():
        try:
            act()
        except BaseException as error:
            failed.append(error)
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=acting)
    thread.start()
    try:
        yield
    finally:
        thread.join(timeout=120)
        if failed:
            raise failed[0]


def test_the_same_bits_as_on_this_machine(cluster, tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    for launcher in ("ray", "auto"):
        summary = launch(job(book.folder, tmp_path / launcher, threads=1), str(book.folder), None, launcher=launcher)
        assert summary["workers"] == 2
    one, other = (load_file(tmp_path / name / "checkpoints/step-6/model.safetensors") for name in ("ray", "auto"))
    assert all(torch.equal(one[name], other[name]) for name in other)
    assert not workers_of(tmp_path / "ray")
    until(lambda: cluster.available_resources().get("CPU") == 2)  # nothing stays reserved


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux's /proc to find the workers")
@pytest.mark.full
def test_killed_workers_and_a_signal(cluster, tmp_path, capsys):
    """The run starts again from its last checkpoint, twice; then SIGTERM ends it with one."""
    book, run = cut(community_graph(), 2, "random", tmp_path), tmp_path / "run"

    def killed(which):
        """Kills a process of the run, and waits until its successors get on."""
        before = workers_of(run)
        os.kill(which(before), signal.SIGKILL)
        until(lambda: len(after := workers_of(run)) == 2 and not set(after.values()) & set(before.values()))
        last = steps_of(run)[-1]  # by those that are gone: they may have got on until they were killed
        until(lambda: reached(run, last + 1))

    def trouble():
        until(lambda: reached(run, 4))
        assert sum(len(listeners(pid)) for pid in workers_of(run).values())
        assert open_to_others(workers_of(run).values()) == []
        killed(lambda workers: workers[1])
        killed(lambda workers: parent(workers[0]))  # the actor; its worker ends with it
        os.kill(os.getpid(), signal.SIGTERM)

    with meanwhile(trouble), pytest.raises(Stopped, match=r"checkpoint of step \d+ written") as end:
        launch(job(book.folder, run, steps=1_000_000, threads=1), str(book.folder), 2, launcher="ray")
    assert end.value.status == 128 + signal.SIGTERM
    first, second = capsys.readouterr().err.splitlines()
    assert "worker 1 was ended by SIGKILL; starting again from step" in first
    assert "worker 0 was lost: Ray lost an actor" in second
    assert not workers_of(run)


@pytest.mark.full
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (lambda job, rank, stale: replace(job, config=replace(job.config, seed=rank)), "seed is 0 on worker 0 and 1"),
        (lambda job, rank, stale: replace(job, parts=str(stale)) if rank else job, "fingerprint is .* on worker 0 and"),
    ],
    ids=["options", "parts"],
)
def test_workers_that_differ_are_refused(cluster, tmp_path, monkeypatch, changed, words):
    """Ray gives all workers one job; should one have another, or an old copy of the parts, nothing is trained."""
    book = cut(community_graph(), 2, "random", tmp_path / "new")
    stale = cut(community_graph(), 2, "blocks", tmp_path / "old")
    variables = on_ray.variables

    def tampered(job, rank, *about):
        return variables(changed(job, rank, stale.folder), rank, *about)

    monkeypatch.setattr(on_ray, "variables", tampered)
    with pytest.raises(InputError, match=words):
        launch(job(book.folder, tmp_path / "run", threads=1), str(book.folder), 2, launcher="ray")
    assert not (tmp_path / "run").exists()
    assert not workers_of(tmp_path / "run")


def test_no_cluster_at_that_address(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'isthmus[ray]' to run this test")
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(InputError, match=f"no Ray cluster at {address} .* correct RAY_ADDRESS"):
        on_ray.start(job(tmp_path / "parts", tmp_path / "run"), 2)


def test_more_workers_than_cores(cluster, tmp_path):
    book = cut(community_graph(), 4, "random", tmp_path)
    with pytest.raises(InputError, match=r"has 2 CPUs on 1 node\(s\), too few for 4 worker\(s\)"):
        launch(job(book.folder, tmp_path / "run"), str(book.folder), None, launcher="ray")


@pytest.mark.parametrize(
    ("nodes", "workers", "cores"), [([8, 8], 2, 8), ([8, 8], 3, 4), ([8, 2], 2, 4), ([2], 4, 0), ([], 1, 0)]
)
def test_cores_of_each(nodes, workers, cores):
    assert on_ray.cores_each(nodes, workers) == cores


def test_refused_before_any_work(tmp_path, monkeypatch):
    asked = job(tmp_path / "parts", tmp_path / "run")
    with pytest.raises(InputError, match="one of auto, ray"):
        launch(asked, asked.parts, 2, launcher="dask")
    monkeypatch.setattr(on_ray, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'isthmus\[ray\]'"):
        launch(asked, asked.parts, 2, launcher="ray")
    monkeypatch.setattr(on_ray, "find_spec", lambda name: object())
    place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="torchrun has already started 2 workers"):
        launch(asked, asked.parts, 2, launcher="ray")
