"""Start workers on a Ray cluster: an actor reserves the cores of each and starts its process there (extra: ray)."""

from __future__ import annotations

import json
import logging
import os
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from isthmus.comm.rendezvous import Rendezvous
from isthmus.comm.secret import new_secret
from isthmus.errors import InputError, WorkerError
from isthmus.launch.job import Job
from isthmus.launch.network import addresses
from isthmus.launch.supervise import LOOPBACK, Meeting, signals, spawn, supervise, variables

KNOCK = 10.0  # seconds for a cluster to answer
PAUSE = 0.2  # seconds between two polls of an actor
LOST = 3  # the exit status of a worker whose actor or node is gone


def check_available() -> None:
    if find_spec("ray") is None:
        raise InputError("--launcher ray needs the ray package: pip install 'isthmus[ray]'")


def start(job: Job, workers: int) -> dict[str, Any]:
    """Run the job on `workers` processes of the cluster and return worker 0's summary; no process outlives this call.

    The cluster is the one that this process is connected to, else the one that RAY_ADDRESS names, else a new one on
    this machine alone. Every node must see the job's folders.
    """
    import ray

    job = replace(job, parts=os.path.abspath(job.parts), out=None if job.out is None else os.path.abspath(job.out))
    with _connected(), _room(job, workers) as (group, cores), tempfile.TemporaryDirectory(prefix="isthmus-") as folder:
        job = replace(job, threads=job.threads or cores)
        actors = _actors(group, cores, workers)
        nodes = _asked([actor.node.remote() for actor in actors], job.timeout)
        local, here = Counter(nodes), ray.get_runtime_context().get_node_id()
        alone = set(nodes) == {here}
        host = "127.0.0.1" if alone else ray.util.get_node_ip_address()
        secret = new_secret()
        # The meeting point is in this process, so no other program can take its port between choice and use.
        with Rendezvous(host, 0, workers, secret.encode()) as point, signals(job) as stop:
            meeting = Meeting(host, point.port, secret)
            told = [variables(job, k, workers, local[node], meeting) for k, node in enumerate(nodes)]
            _asked([actor.start.remote(one, alone) for actor, one in zip(actors, told, strict=True)], job.timeout)
            processes = [_Remote(actor, rank, Path(folder), job.timeout) for rank, actor in enumerate(actors)]
            supervise(job, processes, stop, Path(folder))
        return json.loads((Path(folder) / "summary").read_text())


def _actors(group: Any, cores: int, workers: int) -> list[Any]:
    """Start one actor in each of the reserved places."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    kind = ray.remote(IsthmusWorker)
    places = [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank) for rank in range(workers)]
    return [kind.options(num_cpus=cores, scheduling_strategy=place).remote() for place in places]


class IsthmusWorker:
    """The actor on a node that starts a worker process and reports its state."""

    def node(self) -> str:
        import ray

        return ray.get_runtime_context().get_node_id()

    def start(self, told: dict[str, str], alone: bool) -> None:
        """Start the worker process; `alone`: all workers and their starter are on one node."""
        self.answers = tempfile.TemporaryDirectory(prefix="isthmus-")
        told = {"GLOO_SOCKET_IFNAME": LOOPBACK if alone else _interface(), **told, "ISTHMUS_ANSWERS": self.answers.name}
        self.process = spawn({name: value for name, value in told.items() if value})

    def poll(self) -> tuple[int | None, dict[str, str]]:
        """Return the exit status of the process, and the files that it left for the starter."""
        code = self.process.poll()
        left = () if code is None else Path(self.answers.name).iterdir()
        return code, {file.name: file.read_text() for file in left}

    def terminate(self) -> None:
        self.process.terminate()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.answers.cleanup()


class _Remote:
    """A process started by an actor, in the form that `supervise` expects; its files are copied to `answers`."""

    def __init__(self, actor: Any, rank: int, answers: Path, timeout: float):
        self.actor, self.rank, self.answers, self.timeout = actor, rank, answers, timeout
        self.returncode: int | None = None
        self.asked = 0.0

    def poll(self) -> int | None:
        if self.returncode is None and time.monotonic() > self.asked + PAUSE:
            self.asked = time.monotonic()
            try:
                ((self.returncode, left),) = _asked([self.actor.poll.remote()], self.timeout)
            except WorkerError as error:
                self.returncode, left = LOST, {f"error-{self.rank}": f"worker {self.rank} was lost: {error}"}
            for name, text in left.items():
                (self.answers / name).write_text(text)
        return self.returncode

    def terminate(self) -> None:
        with suppress(WorkerError):
            _asked([self.actor.terminate.remote()], self.timeout)

    def kill(self) -> None:
        """Kill the process, and then the actor that held its place."""
        import ray

        with suppress(WorkerError):
            _asked([self.actor.kill.remote()], self.timeout)
        ray.kill(self.actor)

    def wait(self) -> int:
        return self.returncode or 0  # `kill` has waited for it


def _asked(futures: list[Any], timeout: float) -> list[Any]:
    """Return the answers of actors, or raise a `WorkerError` if they take longer than ``timeout``."""
    import ray

    try:
        return ray.get(futures, timeout=timeout)
    except ray.exceptions.GetTimeoutError as error:
        raise WorkerError(f"Ray did not answer within {timeout:g} s: `ray status` shows its nodes") from error
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[0]
        raise WorkerError(f"Ray lost an actor ({reason}): is isthmus installed on every node?") from error


@contextmanager
def _connected() -> Iterator[None]:
    """Connect to a cluster for the duration of the block, unless already connected."""
    import ray

    if ray.is_initialized():
        yield
        return
    address = os.environ.get("RAY_ADDRESS", "local")
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "//" not in host:  # Ray itself would try for many minutes
        try:
            socket.create_connection((host, int(port)), KNOCK).close()
        except OSError as error:
            raise InputError(f"no Ray cluster at {address} ({error}): correct RAY_ADDRESS, or unset it") from error
    ray.init(address, include_dashboard=False, logging_level=logging.WARNING)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _room(job: Job, workers: int) -> Iterator[tuple[Any, int]]:
    """Reserve cores for all workers together, spread over the nodes; give the group and the cores of each worker."""
    import ray

    free = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    cores = job.threads or cores_each(free, workers)
    if cores_each(free, workers) < max(cores, 1):
        raise InputError(
            f"the Ray cluster has {sum(free):g} CPUs on {len(free)} node(s), too few for {workers} worker(s) with "
            f"{max(cores, 1)} thread(s) each: take fewer --workers or --threads, or add nodes"
        )
    group = ray.util.placement_group([{"CPU": cores}] * workers, strategy="SPREAD")
    try:
        if not group.wait(job.timeout):
            raise WorkerError(
                f"Ray had no {workers} × {cores} CPUs free within {job.timeout:g} s: `ray status` says why"
            )
        yield group, cores
    finally:
        ray.util.remove_placement_group(group)


def cores_each(nodes: list[float], workers: int) -> int:
    """Return the most cores that each worker can have; 0 if there are more workers than cores."""
    return next((c for c in range(int(max(nodes, default=0)), 0, -1) if sum(n // c for n in nodes) >= workers), 0)


def _interface() -> str:
    """Return the network interface by which Ray reaches this node, unless the user named one; "" if unknown."""
    import ray

    own, ip = os.environ.get("GLOO_SOCKET_IFNAME", ""), ray.util.get_node_ip_address()
    return own or next((name for name, address in addresses().items() if address == ip), "")
