"""Predict the cost of every recipe on given parts, machines and links: bytes, memory, seconds of a step."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import mean
from typing import Any

from isthmus import recipes
from isthmus.comm.hosts import in_blocks
from isthmus.engine import TrainConfig
from isthmus.engine.record import KINDS
from isthmus.errors import InputError
from isthmus.experiments.plan.batches import BatchOutlook, Machine, Parts, plan_batches
from isthmus.experiments.plan.fit import (
    OnDevice,
    check_floor,
    device_limit,
    fullest,
    too_large,
    too_large_for_device,
    worker_memory,
)
from isthmus.experiments.plan.memory import available, bytes_of
from isthmus.experiments.plan.rehearse import PRELUDE, rehearse
from isthmus.experiments.plan.replay import Cluster, replay
from isthmus.experiments.plan.trace import computing, joined, steadied, steps_of
from isthmus.experiments.plan.transfer import busiest
from isthmus.launch import local
from isthmus.launch.gauge import Gauge
from isthmus.launch.job import Job
from isthmus.launch.memory import GAPS
from isthmus.launch.place import threads_for
from isthmus.partition import Book, shares
from isthmus.recipes.base import MINI_BATCH
from isthmus.recipes.parse import Entry
from isthmus.testbed import bits_per_second, queue_bytes

MOST_GAUGED = 8  # workers between which messages are measured
Tell = Callable[[str], None]


@dataclass(frozen=True)
class PlanRequest:
    """The request for a plan. ``config`` holds for every recipe, except for its name and options."""

    entries: Sequence[Entry]
    config: TrainConfig
    workers: int | None = None
    link: str | None = None
    """The rate of the machines' links, such as 10gbit; None: all workers are on this machine."""
    hosts: int | None = None
    """The number of machines like this one, each of which has a block of workers. None: one for each worker."""
    testbed: bool = False
    """Whether the hosts are those of a testbed: links of their own, but the cores and the memory of this machine."""
    threads: int | None = None
    memory: str | None = None
    """The memory of a machine, such as 16GiB; None: what this one has left."""
    device_memory: str | None = None
    """The memory of each worker's accelerator, such as 24GiB; None: the least that one of this machine has, if any."""
    steps: int = 6
    """The number of steps of a rehearsal whose times count."""
    scale: float = 1.0
    """Of mini-batches: how many times as many nodes and edges the graph has that is planned for."""

    def __post_init__(self) -> None:
        least = {"workers": self.workers, "hosts": self.hosts, "threads": self.threads, "steps": self.steps}
        for name, value in least.items():
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, not {value}")
        if not 0 < self.scale < float("inf"):
            raise InputError(f"scale must be above 0, not {self.scale:g}")
        if self.scale != 1 and not self.batches:
            raise InputError("--scale is for mini-batches, whose size does not depend on the graph's: leave it out")
        if self.link is not None:
            bits_per_second(self.link)
        elif self.hosts is not None or self.testbed:
            raise InputError("hosts are joined by links: give --link RATE too")
        if self.memory is not None:
            bytes_of(self.memory)
        if self.device_memory is not None:
            bytes_of(self.device_memory)
        for entry in self.entries:
            if entry.options.get("auto"):
                raise InputError(f"{entry.label!r} measures the link while it trains: plan it with options of its own")

    @property
    def batches(self) -> bool:
        """Whether mini-batches are planned."""
        return any(recipes.find(entry.recipe).plane == MINI_BATCH for entry in self.entries)


@dataclass(frozen=True)
class Outlook:
    """The predicted cost of one recipe. Bytes are those of all workers, by kind; memory is the largest worker's."""

    label: str
    recipe: str
    options: dict[str, Any]
    bytes_first_step: dict[str, int]
    bytes_per_step: dict[str, float]
    memory_per_worker: int
    memory_per_machine: int
    fits: bool
    compute_seconds: float
    """The seconds of a step if no worker ever waited."""
    transfer_seconds: float
    """The seconds of the busiest direction of a link in a step if nothing were computed."""
    step_seconds: float
    on_device: OnDevice
    """The memory of the largest worker on an accelerator."""


@dataclass(frozen=True)
class Outlooks:
    """The plan: its assumptions, and the predicted cost of every recipe."""

    graph: str
    parts: int
    workers: int
    link: str | None
    machines: int
    cores: int
    threads: int
    memory: int | None
    gauge: Gauge
    recipes: list[Outlook]
    device_memory: int | None = None
    """The memory of each worker's accelerator; None: there is none."""
    batches: list[BatchOutlook] = field(default_factory=list)
    scale: float = 1.0

    @property
    def base(self) -> Outlook:
        """The recipe that others are compared with: vanilla if it is there, else the first."""
        return next((one for one in self.recipes if one.recipe == "vanilla"), self.recipes[0])

    def speed_up(self, one: Outlook) -> float:
        return self.base.step_seconds / one.step_seconds

    def as_dict(self) -> dict[str, Any]:
        result = asdict(self)
        for content, one in zip(result["recipes"], self.recipes, strict=True):
            content["speed_up"] = self.speed_up(one)
        return result


def plan(asked: PlanRequest, book: Book, tell: Tell | None = None) -> Outlooks:
    """Rehearse every recipe on the parts and replay it; refuse what cannot fit, with the remedy."""
    tell = tell or (lambda text: None)
    workers = asked.workers or book.num_parts
    cluster, limit = _cluster(asked, workers), bytes_of(asked.memory) if asked.memory else available()
    if not asked.batches:
        check_floor(asked.config, book, cluster.machine, limit)
    if (load := _load()) > 0.5:
        tell(f"note: this machine is busy with other work ({load:.1f} tasks per core): predicted times are too long")
    tell("messages between workers of this machine …")
    together = min(max(cluster.machine.count(0), 2), MOST_GAUGED)
    gauge = Gauge(**local.start(Job("gauge", "", asked.config, threads=1), together))
    found, drawn = list[Outlook](), list[BatchOutlook]()
    parts = Parts(book, asked.config, workers) if asked.batches else None
    for place, entry in enumerate(asked.entries, 1):
        tell(f"{place}/{len(asked.entries)} {entry.label} …")
        if parts is None:
            found.append(_outlook(entry, asked, book, cluster, gauge, limit))
        else:
            machine = Machine(gauge.memory, gauge.bandwidth, limit, asked.scale)
            drawn.append(plan_batches(entry, asked.config, parts, cluster, asked.steps, machine))
    machines = len(set(cluster.machine))
    result = Outlooks(
        book.name,
        book.num_parts,
        workers,
        asked.link,
        machines,
        int(cluster.cores),
        cluster.threads,
        limit,
        gauge,
        found,
        device_limit(asked.device_memory),
        drawn,
        asked.scale,
    )
    if drawn:
        if not any(one.fits for one in drawn):
            size, label = min((one.memory_per_worker, one.label) for one in drawn)
            raise too_large(f"even {label}", size * cluster.machine.count(0), limit or 0)
        return result
    on_device = result.device_memory
    if on_device is not None and all(one.on_device.needed(asked.config) > on_device for one in found):
        least = min(found, key=lambda one: one.on_device.needed(asked.config))
        raise too_large_for_device(f"even {least.label}", least.on_device, asked.config, on_device)
    if not any(one.fits for one in found):
        least = min(found, key=lambda one: one.memory_per_machine)
        raise too_large(f"even {least.label}", least.memory_per_machine, limit or 0)
    return result


def _load() -> float:
    """Return the tasks per core in the last minute."""
    return os.getloadavg()[0] / threads_for(1, None)


def _cluster(asked: PlanRequest, workers: int) -> Cluster:
    hosts = 1 if asked.link is None else asked.hosts or workers
    if hosts > workers:
        raise InputError(f"{hosts} hosts but {workers} workers: give at most --hosts {workers}")
    host = in_blocks(workers, hosts)
    machine = [0] * workers if asked.testbed else host
    cores, threads = threads_for(1, None), threads_for(machine.count(0), asked.threads)
    if asked.link is None:
        return Cluster(machine, host, cores, threads)
    rate = bits_per_second(asked.link)
    return Cluster(machine, host, cores, threads, rate / 8, queue_bytes(rate))


def _at_once(cluster: Cluster) -> int:
    """Return how many workers of a machine compute together in a rehearsal.

    All, where each has a clock of its own (`Rehearsing`), so that they compete for the caches as they will in training;
    else as many as have cores.
    """
    together = cluster.machine.count(0)
    return together if cluster.threads == 1 else max(1, min(together, int(cluster.cores) // cluster.threads))


def _outlook(
    entry: Entry, asked: PlanRequest, book: Book, cluster: Cluster, gauge: Gauge, limit: int | None
) -> Outlook:
    config = replace(asked.config, recipe=entry.recipe, options=entry.options)
    policy = recipes.find(entry.recipe).policy(entry.options).unguarded  # the steps that a guard lets be lossy
    workers, together = len(cluster.machine), cluster.machine.count(0)
    played = rehearse(book, config, policy, workers, cluster.threads, _at_once(cluster), asked.steps)
    of_parts = list(zip(shares(book, workers), played, strict=True))
    memory = [worker_memory(book, parts, round(GAPS * one.memory), gauge.memory) for parts, one in of_parts]
    on_device = max(
        (OnDevice.of(config, book, parts, one.memory) for parts, one in of_parts), key=lambda one: one.needed(config)
    )
    limit_there = device_limit(asked.device_memory)
    fits_there = limit_there is None or on_device.needed(config) <= limit_there
    machine = fullest(memory, cluster.machine)
    whole = [steps_of(one.trace) for one in played]
    steady = [steadied(steps[PRELUDE:]) for steps in whole]
    begun = replay([joined([*w[:PRELUDE], *s]) for w, s in zip(whole, steady, strict=True)], cluster, gauge)
    crowded = max(1.0, together * cluster.threads / cluster.cores)
    sent = [sum((one.sent[step] for one in played), Counter()) for step in range(PRELUDE + asked.steps)]
    return Outlook(
        entry.label,
        entry.recipe,
        entry.options,
        {kind: sent[0][kind] for kind in KINDS},
        {kind: mean(step[kind] for step in sent[PRELUDE:]) for kind in KINDS},
        max(memory),
        machine,
        fits_there and (limit is None or machine <= limit),
        max(mean(computing(step) for step in steps) for steps in steady) * crowded,
        busiest(steady, cluster, gauge.bandwidth),
        mean((times[-1] - times[PRELUDE]) / asked.steps for times in begun),
        on_device,
    )
