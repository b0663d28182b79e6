"""Replay the traces of all workers on machines and links that are only described.

The model is a fluid: what has begun goes on at a constant speed until something else begins or ends.

- A message sets out `latency` after its sender has sent it and its reader has room for it, and when threads at both
  ends have done the work `aside` of all messages so far. Messages of one worker to another keep their order, except
  those that are sent apart, such as sums over workers.
- Messages share the two directions of every host's link evenly; those inside a host only need its cores. One that is
  sent apart still queues at the link behind what others have put there.
- Workers that compute, and the threads that move their bytes, share the cores of their machine: small demands are met,
  the others get equal shares.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.experiments.plan.trace import Compute, Post, Step, Trace
from isthmus.launch.gauge import Gauge


@dataclass(frozen=True)
class Cluster:
    """The machines on which workers run, and the links of hosts. `machine` and `host` are per worker."""

    machine: Sequence[int]  # the machine whose cores it shares
    host: Sequence[int]  # the host whose link it shares; workers of one host reach each other without it
    cores: float  # of a machine
    threads: int  # of a worker
    link: float | None = None  # bytes per second in each direction; None: as fast as cores move them
    queue: float = 0.0  # bytes that may wait at a link


@dataclass
class Flow:
    """A message on its way."""

    source: int
    target: int
    left: float  # bytes
    transfer: int
    apart: bool = False
    starts: float = np.inf  # the time at which it may set out
    away: bool = False  # whether it has set out


def replay(traces: Sequence[Trace], cluster: Cluster, gauge: Gauge) -> list[list[float]]:
    """Return the times, in seconds, at which each worker began each of its steps."""
    return _Play(traces, cluster, gauge).run()


def fair(demands: np.ndarray, capacity: float) -> np.ndarray:
    """Return shares of a capacity: all demands, if there is enough; else small ones, and equal shares for the rest."""
    given, open_ = np.zeros(len(demands)), demands > 0
    while open_.any():
        share = (capacity - given.sum()) / open_.sum()
        content = open_ & (demands <= share)
        if not content.any():
            given[open_] = share
            break
        given[content] = demands[content]
        open_ &= ~content
    return given


def _less(left: np.ndarray, done: np.ndarray) -> np.ndarray:
    return np.where(left <= done * (1 + 1e-9), 0.0, left - done)


class _Play:
    def __init__(self, traces: Sequence[Trace], cluster: Cluster, gauge: Gauge):
        self.traces, self.cluster, self.gauge = traces, cluster, gauge
        self.size, self.now = len(traces), 0.0
        self.at = [0] * self.size  # the next event of each worker
        self.computing = np.zeros(self.size)  # seconds left
        self.aside = np.zeros(self.size)  # the same for the thread that moves bytes
        self.steps: list[list[float]] = [[] for _ in traces]
        self.posted = [0] * self.size  # the last transfer of each worker
        self.waiting = [0] * self.size  # the transfer waited for; 0: none
        self.open: dict[tuple[int, int], int] = defaultdict(int)  # (transfer, worker): messages not yet over
        self.queues: dict[tuple[int, int, bool], deque[Flow]] = defaultdict(deque)  # by sender, reader and apart
        self.machine, self.host = np.array(cluster.machine), np.array(cluster.host)
        for source, trace in enumerate(traces):
            for event in trace:
                if isinstance(event, Post):
                    for target, size in enumerate(event.sizes):
                        if size:
                            self.open[event.transfer, source] += 1
                            self.open[event.transfer, target] += 1

    def run(self) -> list[list[float]]:
        while True:
            while sum(self._advance(worker) for worker in range(self.size)):
                pass  # because one may have set another free
            flows = [queue[0] for queue in self.queues.values() if queue]
            going = [flow for flow in flows if self._away(flow)]
            soon = min((flow.starts - self.now for flow in flows if flow.starts > self.now), default=np.inf)
            if not going and not self.computing.any() and not self.aside.any() and soon == np.inf:
                break
            self._flow(going, soon)
        stuck = [worker for worker in range(self.size) if self.at[worker] < len(self.traces[worker])]
        assert not stuck, f"workers {stuck} wait for what nobody sends"
        return self.steps

    def _advance(self, worker: int) -> bool:
        """Let a worker go on until it has to compute or to wait; return whether it moved."""
        moved = False
        while self._free(worker) and self.at[worker] < len(self.traces[worker]):
            event = self.traces[worker][self.at[worker]]
            self.at[worker] += 1
            moved = True
            if isinstance(event, Step):
                self.steps[worker].append(self.now)
            elif isinstance(event, Compute):
                self.computing[worker] += event.seconds
            elif isinstance(event, Post):
                self._post(worker, event)
            else:
                self.waiting[worker] = event.transfer
        return moved

    def _free(self, worker: int) -> bool:
        if self.waiting[worker] and not self.open[self.waiting[worker], worker]:
            self.waiting[worker] = 0
        return not (self.computing[worker] or self.waiting[worker])

    def _post(self, worker: int, event: Post) -> None:
        self.posted[worker] = event.transfer
        for target, size in enumerate(event.sizes):
            if size:
                flow = Flow(worker, target, size, event.transfer, event.apart)
                self.queues[worker, target, event.apart].append(flow)
        self.computing[worker] += self.gauge.per_message * self.open[event.transfer, worker]
        self.computing[worker] += self.gauge.per_sent_byte * sum(event.sizes)
        for queue in self.queues.values():
            for flow in queue:
                if flow.starts == np.inf and min(self.posted[flow.source], self.posted[flow.target]) >= flow.transfer:
                    flow.starts = self.now + self.gauge.latency + self._queued(flow)
                    self.aside[[flow.source, flow.target]] += self.gauge.aside

    def _queued(self, flow: Flow) -> float:
        """Return the seconds that a message sent apart spends at its host's link behind the rows that are there."""
        if not flow.apart or self.cluster.link is None or self.host[flow.source] == self.host[flow.target]:
            return 0.0
        rows = (queue[0] for (_, _, apart), queue in self.queues.items() if queue and not apart)
        ahead = sum(one.left for one in rows if one.away and self._leaves(one, self.host[flow.source]))
        return min(self.cluster.queue, ahead) / self.cluster.link

    def _leaves(self, flow: Flow, host: int) -> bool:
        return self.host[flow.source] == host != self.host[flow.target]

    def _away(self, flow: Flow) -> bool:
        working = self.aside[flow.source] or self.aside[flow.target]
        flow.away = flow.away or (flow.starts <= self.now and not working)
        return flow.away

    def _flow(self, going: list[Flow], soon: float) -> None:
        """Let time pass until the next event ends or begins."""
        sources, targets = np.array([f.source for f in going], int), np.array([f.target for f in going], int)
        speed = self._on_links(sources, targets)
        busy = np.where(self.computing > 0, float(self.cluster.threads), 0.0)
        moving = self.gauge.per_byte * (
            np.bincount(sources, speed, self.size) + np.bincount(targets, speed, self.size)
        )  # cores that the bytes of each worker ask for; one thread moves them
        given = np.zeros((2, self.size))
        asked = np.stack([busy, np.where(self.aside > 0, 1.0, np.minimum(moving, 1.0))])
        for machine in np.unique(self.machine):
            here = self.machine == machine
            given[:, here] = fair(asked[:, here].ravel(), self.cluster.cores).reshape(2, -1)
        pace = np.divide(given[0], busy, out=np.zeros(self.size), where=busy > 0)
        carried = np.minimum(1.0, np.divide(given[1], moving, out=np.ones(self.size), where=moving > 0))
        helping = np.maximum(1e-3, given[1] - moving * carried)  # what moving bytes leaves for the work aside
        speed = speed * np.minimum(carried[sources], carried[targets])
        left, helped = np.array([flow.left for flow in going]), self.aside > 0
        ends = [soon, *(left / speed), *(self.computing[pace > 0] / pace[pace > 0])]
        passed = min([*ends, *(self.aside[helped] / helping[helped])])
        self.now += passed
        self.computing = _less(self.computing, pace * passed)
        self.aside = _less(self.aside, helping * passed)
        for flow, rate in zip(going, speed, strict=True):
            flow.left -= rate * passed
            if flow.left <= rate * 1e-12 + 1e-9:
                self.queues[flow.source, flow.target, flow.apart].popleft()
                self.open[flow.transfer, flow.source] -= 1
                self.open[flow.transfer, flow.target] -= 1

    def _on_links(self, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the bytes per second of every message, if cores were free."""
        speed = np.full(len(sources), self.gauge.bandwidth)
        if self.cluster.link is not None:
            out, into = self.host[sources], self.host[targets]
            crosses, hosts = out != into, int(self.host.max()) + 1
            leaving = np.bincount(out[crosses], minlength=hosts)
            arriving = np.bincount(into[crosses], minlength=hosts)
            shared = self.cluster.link / np.maximum(1, np.maximum(leaving[out], arriving[into]))
            speed = np.where(crosses, np.minimum(speed, shared), speed)
        return speed
